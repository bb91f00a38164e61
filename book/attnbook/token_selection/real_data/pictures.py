"""A folder of one's own pictures as a data set: a subfolder a class, read by Pillow (extra `real`)."""

import hashlib
from pathlib import Path

import numpy as np

from attnbook.token_selection.real_data.backbones import progress_bar
from attnbook.token_selection.real_data.formats import FormatError
from attnbook.token_selection.real_data.loaders import RealData, Split
from attnlib.extras import extra

FEWEST = 20  # pictures of a class


def load_pictures(folder: Path, side: int, *, progress: bool = False) -> RealData:
    """All pictures of the subfolders, in colour, resized to `side` x `side` pixels; a class is called as its subfolder.

    Hidden files and files whose ending Pillow does not know are passed over. Raises FormatError, before anything else is done, for fewer
    than two classes, a class of fewer than `FEWEST` pictures, and pictures that cannot be read, which it names.
    """
    with extra("real"):
        from PIL import Image, ImageOps

    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    known = Image.registered_extensions()
    files = [
        [p for p in sorted(one.iterdir()) if p.suffix.lower() in known and not p.name.startswith(".")]
        for one in classes
    ]
    if len(classes) < 2:
        raise FormatError(
            folder, f"holds {len(classes)} classes", "make a subfolder of pictures for each class, two or more"
        )
    if few := [f"{one.name} {len(own)}" for one, own in zip(classes, files, strict=True) if len(own) < FEWEST]:
        raise FormatError(
            folder, f"too few pictures: {', '.join(few)}", f"each class needs {FEWEST}: add some, or take it out"
        )
    x, y, broken = [], [], []
    digest = hashlib.sha256()
    for label, path in progress_bar([(k, p) for k, own in enumerate(files) for p in own], "pictures", progress):
        try:
            with Image.open(path) as picture:
                if picture.mode[0] in "IF":
                    raise ValueError(f"more than 8 bits a pixel, mode {picture.mode}")
                x.append(np.asarray(ImageOps.exif_transpose(picture).convert("RGB").resize((side, side))))
        except Exception as error:  # a damaged picture raises almost anything
            broken.append(f"{path} ({type(error).__name__}: {error})")
        y.append(label)
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        raise FormatError(
            folder, f"cannot be read: {', '.join(broken[:3])}{more}", "save again with 8 bits a pixel, or remove"
        )
    split = Split(np.stack(x).transpose(0, 3, 1, 2), np.array(y, np.int64), {"pictures": digest.hexdigest()})
    return RealData(
        "own pictures", "image", {"all": split}, tuple(one.name for one in classes), 255, "a folder of pictures"
    )
