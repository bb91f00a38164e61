"""How far apart the colours of book.css are for readers who see them differently, and how much text stands out.

Simulation: Machado, Oliveira and Fernandes (2009), matrices of full severity, applied to linear RGB. Distance: CIE 1976,
the Euclidean distance in CIELAB under D65; about 2 is just noticed, 10 is seen at a glance. Contrast: WCAG 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import numpy as np

# Linear RGB seen -> linear RGB as it appears. Each row sums to one: greys stay grey.
VISIONS = {
    "full colour vision": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
_XYZ = np.array(
    ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
)


def _linear(colour: str) -> np.ndarray:
    """`#rrggbb` -> (3,) linear RGB. Raises ValueError for anything else."""
    digits = colour.removeprefix("#")
    if len(digits) != 6 or not colour.startswith("#"):
        raise ValueError(f"colour must be written #rrggbb; got {colour!r}")
    value = np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def simulated(colour: str, vision: str) -> np.ndarray:
    """(3,) linear RGB of `colour` as seen with `vision`, a key of `VISIONS`."""
    return np.clip(np.array(VISIONS[vision]) @ _linear(colour), 0, 1)


def _lab(linear: np.ndarray) -> np.ndarray:
    ratio = _XYZ @ linear / _XYZ.sum(1)
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array((116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])))


def distance(first: str, second: str, vision: str = "full colour vision") -> float:
    """Distance of two colours in CIELAB, as seen with `vision`."""
    return float(np.linalg.norm(_lab(simulated(first, vision)) - _lab(simulated(second, vision))))


def least_distance(colours: Iterable[str], vision: str = "full colour vision") -> float:
    """The smallest distance between two of `colours`, as seen with `vision`."""
    return min(distance(first, second, vision) for first, second in combinations(colours, 2))


def contrast(first: str, second: str) -> float:
    """Contrast ratio of WCAG 2, from 1 to 21: (L + 0.05) / (l + 0.05) with the relative luminances L >= l."""
    low, high = sorted(float(_XYZ[1] @ _linear(colour)) for colour in (first, second))
    return (high + 0.05) / (low + 0.05)


def sheet_colours(sheet: Path, theme: str) -> dict[str, str]:
    """Name -> `#rrggbb` of the variables `--book-NAME` of a theme (light or dark) in book.css, comments left out.

    Raises ValueError where the sheet has no such block.
    """
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.S)
    block = re.search(rf'html\[data-theme="{theme}"\]\s*\{{(.*?)\}}', text, flags=re.S)
    if block is None:
        raise ValueError(f'{sheet.name} must hold a block html[data-theme="{theme}"]; it has none')
    return {name: value.lower() for name, value in re.findall(r"--book-([\w-]+):\s*(#[0-9a-fA-F]{6})\s*;", block[1])}
