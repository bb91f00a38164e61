"""The hot loops, each against its naive form, and probes of the machine they run on: what the chapter on kernels draws."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import kernel_gaussian_tail, kernel_heads, kernel_in_context, kernel_token_selection, machine
from benchmarks.registry import Part

__all__ = ["part"]

_MODULES = (machine, kernel_heads, kernel_token_selection, kernel_in_context, kernel_gaussian_tail)


def _ratios(median: Mapping[str, float]) -> dict[str, float]:
    return {name: value for module in _MODULES for name, value in module.ratios(median).items()}


def part(device: str) -> Part:
    """The cases for "cpu" or "cuda"."""
    return Part("kernels", tuple(case for module in _MODULES for case in module.cases(device)), _ratios)
