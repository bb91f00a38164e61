"""Work that cannot be done is refused before it begins, with the number that would fit.

A call says how many bytes it needs at once, as a function of the numbers that it was given. Estimates are low, so that nothing is
refused that could be done; below a quarter of a gigabyte nobody is asked.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from reprlib import repr as shortened

import torch

_SMALL = 1 << 28  # bytes that every machine has
_HUGE = 10**300  # beyond it a whole number has no float


def free_memory(device: torch.device | str = "cpu", *, root: Path = Path("/")) -> float:
    """Bytes that can be had on `device`: what the system says is free, within the limit of the container; inf if nobody says."""
    device = torch.device(device)
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if (root / "proc/meminfo").is_file():
        free = 1024.0 * _numbers(root / "proc/meminfo").get("MemAvailable:", math.inf)
        return min([free, *_containers(root)])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) if hasattr(os, "sysconf") else math.inf


def _containers(root: Path) -> Iterator[float]:
    """What the limits of this process's control groups leave, of both versions; pages of files do not count as used."""
    try:
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return
    for _, controllers, path in groups:
        if controllers and "memory" not in controllers.split(","):
            continue
        most, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        )
        for folder in {root / "sys/fs/cgroup" / controllers / part for part in ("", path.lstrip("/"))}:
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                limit, now = (float((folder / name).read_text(encoding="ascii")) for name in (most, used))
                cached = 0.0
                with contextlib.suppress(OSError):
                    cached = _numbers(folder / "memory.stat").get("inactive_file", 0.0)
                yield max(0.0, limit - now + cached)


def _numbers(file: Path) -> dict[str, float]:
    lines = map(str.split, file.read_text(encoding="ascii").splitlines())
    return {words[0]: float(words[1]) for words in lines if len(words) > 1}


def require_memory(bytes_of: Callable[..., float], *, device: torch.device | str = "cpu", **sizes: int) -> None:
    """Raise ValueError unless `bytes_of(**sizes)` bytes are free on `device`.

    The sentence says which of `sizes`, made smaller alone, would let the call fit, and how large it may be.

    >>> require_memory(lambda n: 8 * n * n, n=1000)
    """
    needed = min(bytes_of(**sizes), _HUGE)
    if needed > _SMALL and needed > (free := free_memory(device)):
        raise ValueError(sentence(bytes_of, free, sizes, f"{_size(needed)} of memory, and {_size(free)} are free"))


def sentence(cost: Callable[..., float], budget: float, sizes: dict[str, int], told: str) -> str:
    named = [f"{name} = {shortened(size)}" for name, size in sizes.items()]
    alone = {name: _largest(cost, sizes, name, budget) for name in sizes}
    fitting = [f"{name} = {size}" for name, size in alone.items() if size]
    advice = f"{' or '.join(fitting)} would fit" if fitting else "take smaller numbers"
    return f"{', '.join(named)} need{'s' * (len(named) == 1)} {told}: {advice}"


def _largest(cost: Callable[..., float], sizes: dict[str, int], name: str, budget: float) -> int:
    """The largest number in the place of `name` whose cost, which grows with it, is within the budget, to two digits; 0 if none is."""
    low, high = 0, sizes[name]
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (middle, high) if cost(**sizes | {name: middle}) <= budget else (low, middle)
    unit: int = 10 ** max(0, len(str(low)) - 2)
    return low // unit * unit


def _size(count: float) -> str:
    power = min(5, int(math.log2(max(count, 1)) // 10))
    return f"{count / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"
