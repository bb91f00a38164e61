r"""What the fixed pretrained backbones have in common: weights inside an installed package, tokens that are computed once and kept.

The tokens of a set lie in the folder of `cache_folder()`, float16, some samples a file; an interrupted run goes on where it stopped.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from attnbook.token_selection.real_data.backbones import progress_bar
from attnbook.token_selection.real_data.text_encoder import file_sha256
from bookkit.files import written_aside


@dataclass(frozen=True)
class Packaged:
    """Files that installed packages hold: for each the package, the path in it, bytes and sha256. `install`: the command."""

    what: str
    files: tuple[tuple[str, str, int, str], ...]
    install: str

    def paths(self) -> list[Path]:
        """The files, in order; no code of a package is run.

        Raises ModuleNotFoundError without a package, ValueError for a file of another size or sha256; each names the command.
        """
        return [self._path(*file) for file in self.files]

    def _path(self, package: str, file: str, expected: int, sha256: str) -> Path:
        found = find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError(f"{self.what}: they are a package that is not installed: {self.install}")
        path = Path(found.submodule_search_locations[0]) / file
        size = path.stat().st_size if path.is_file() else 0
        if size != expected or file_sha256(path) != sha256:
            what = "is missing" if not path.is_file() else "was changed"
            if path.is_file() and size != expected:
                what = f"has {size} bytes, not {expected}"
            raise ValueError(f"{self.what}: {path.name} of the installed package {what}: {self.install}")
        return path


class KeptTokens:
    """Tokens of samples, (L, D) each, kept in `folder`, `at_once` samples a file.

    A backbone defines `compute`: samples to float16 (N, L, D); `contents`: samples to the bytes by which a file is found again.
    """

    def __init__(self, folder: Path, shape: tuple[int, int], at_once: int) -> None:
        self.folder, self.shape, self.at_once = folder, shape, at_once

    def compute(self, samples: Sequence) -> np.ndarray:
        raise NotImplementedError

    def contents(self, samples: Sequence) -> bytes:
        raise NotImplementedError

    def _kept(self, samples: Sequence) -> Path:
        return self.folder / f"{hashlib.sha256(self.contents(samples)).hexdigest()}.npy"

    def missing(self, samples: Sequence) -> int:
        """How many samples of a split are not kept yet."""
        parts = [samples[start : start + self.at_once] for start in range(0, len(samples), self.at_once)]
        return sum(len(part) for part in parts if not self._kept(part).is_file())

    @torch.no_grad()
    def _chunk(self, samples: Sequence) -> np.ndarray:
        kept = self._kept(samples)
        if not kept.is_file():
            found = self.compute(samples)
            self.folder.mkdir(parents=True, exist_ok=True)
            with written_aside(kept) as temporary, temporary.open("wb") as file:
                np.save(file, found)
        return np.load(kept, mmap_mode="r")

    def transform(self, samples: Sequence, rows: np.ndarray, *, progress: bool = False) -> torch.Tensor:
        """Tokens (len(rows), L, D), float16, of some rows of a split's samples.

        What is kept is cut from the whole split, `at_once` samples at a time: give the same split each time.
        """
        found, size = torch.empty(len(rows), *self.shape, dtype=torch.float16), self.at_once
        for start in progress_bar(np.unique(rows // size) * size, f"samples by {size}", progress):
            kept, here = self._chunk(samples[start : start + size]), rows // size * size == start
            found[here] = torch.from_numpy(kept[rows[here] - start])
        return found
