"""How far two pictures of a page lie apart: coarsely, so that letters may move by a few pixels and a curve may not.

Both are brought to 256 x 256 points, and around each point the mean of 4 x 4 is taken: of its grey, and of three differences of its
colours, which count twice, for letters have none. Where such a mean lies outside what the other picture has within four points, it
counts by how much. `distance` is the mean over the 0.3 % of points that lie farthest outside.

Measured (grey from 0 to 1): pages of 12 kinds on other processors and shaken inputs 0.0000; letters hinted otherwise 0.03; the book's
figures drawn by matplotlib 3.10 with FreeType 2.6 in place of 3.11 with 2.14, another layout of all letters, 0.083 at most, where it
chose the same ticks. Wrong pictures: one curve moved by a tenth of its axis 0.13 (black, in the smallest of nine panels) or 0.21 (in the
book); the colours of two thin curves exchanged 0.12 (blue and green); 5 bins for 20 0.39; an empty one 0.46; any other of the book 0.50.
What is smaller is left to `drawn_differences`: a figure's code says what it drew.
"""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bookkit import drawn

if TYPE_CHECKING:
    from PIL.Image import Image

KINDS = ("image/png", "image/jpeg")
ALLOWED = 0.1
SIZE = 0.02  # of width and height
POINTS, SHARE, COLOUR = 256, 0.003, 2
_MEAN, _NEAR = (1, 2), (1, 2, 4, 1)  # steps to windows of 4 and of 9 points


def picture_difference(stored: str, fresh: str) -> str:
    """What two pictures, as notebooks keep them, differ in, in words; empty where it is no more than letters do."""
    if stored == fresh:
        return ""
    found = [_opened(text) for text in (stored, fresh)]
    for image, which in zip(found, ("stored", "new"), strict=True):
        if image is None:
            return f"the {which} one is no picture"
    old, new = (image for image in found if image is not None)
    if any(abs(a - b) > SIZE * max(a, b) for a, b in zip(old.size, new.size, strict=True)):
        return f"stored {old.width} x {old.height} pixels, now {new.width} x {new.height}"
    apart = distance(old, new)
    return f"another picture: {apart:.2f} from the stored one, {ALLOWED} are allowed" if apart > ALLOWED else ""


def drawn_differences(stored: str, fresh: str, same: Callable[[str, str], bool]) -> list[str]:
    """Up to three of the differences in what two pictures say that was drawn (`bookkit.drawn`); `same`: of two texts."""
    old, new = (drawn.read(image) if (image := _opened(text)) else None for text in (stored, fresh))
    if old is None and new is None:
        return []
    if old is None or new is None:
        return [f"the {'stored' if old is None else 'new'} one does not say what was drawn"]
    return list(itertools.islice(drawn.differences(old, new, same), 3))


def distance(one: Image, other: Image) -> float:
    """How far two pictures lie apart; see the module."""
    means = [_means(one), _means(other)]
    outside = np.zeros(1)
    for these, those in (means, means[::-1]):
        low, high = (_windows(those, pick, _NEAR) for pick in (np.minimum, np.maximum))
        inner = these[4:-4, 4:-4]
        outside = np.maximum(outside, np.maximum(inner - high, low - inner))
    farthest = outside.max(axis=-1).ravel()
    count = int(SHARE * farthest.size)
    return float(np.partition(farthest, -count)[-count:].mean())


def _opened(text: str) -> Image | None:
    """The picture, whole; None where the text is none."""
    from PIL import Image

    try:
        found = Image.open(io.BytesIO(base64.b64decode(text)))
        found.load()
    except Exception:  # of Pillow's many decoders, each has its own
        return None
    return found


def _means(image: Image) -> np.ndarray:
    """Grey and three differences of colours around each point, (points, points, 4)."""
    from PIL import Image

    small = image.convert("RGB").resize((POINTS, POINTS), Image.Resampling.BOX)
    red, green, blue = np.moveaxis(np.asarray(small, dtype=np.float32) / 255, -1, 0)
    differences = [COLOUR * each for each in (red - green, green - blue, blue - red)]
    return _windows(np.stack([(red + green + blue) / 3, *differences], axis=-1), np.add, _MEAN) / 16


def _windows(points: np.ndarray, pick: Callable, steps: Sequence[int]) -> np.ndarray:
    """`pick` over each square of points: the windows grow by `steps`, along one axis and then along the other."""
    for _ in range(2):
        for step in steps:
            points = pick(points[step:], points[:-step])
        points = points.swapaxes(0, 1)
    return points
