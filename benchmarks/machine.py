"""What one core can do at best: the roofs under which the kernels are drawn.

* `peak-*`: independent chains x <- a x + b, in vectors of 64 bytes; nothing touches memory.
* `read-*`: the sum of an array that fits L2, fits only L3, or fits neither, read again and again.
* `...-2threads`: the same on two cores at once, each with numbers of its own.

The arrays follow from the sizes of the caches where the system tells them (Linux), else from common ones: half of L2;
eight times L2, or half of L3 if that is less; twice L3, between half and one and a half gigabytes. The L3 of a virtual
machine may be shared with strangers: measured is what is left to us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from attnlib.kernels.batches import aligned
from benchmarks.registry import Case, Work, of_one_unit

__all__ = ["cases", "ratios", "working_sets"]

_TURNS = 10_000_000  # of the chains, in one call
_READ = 2**31  # bytes that one call reads on each thread
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_KB, _MB = 2**10, 2**20
_VECTOR = 64
_READERS = 8  # vectors added up side by side: an addition takes about four cycles, and a cycle can read two vectors
_PROBES = tuple(f"{name}{more}" for more in ("", "-2threads")
                for name in ("peak-float32", "peak-float64", "read-L2", "read-L3", "read-memory"))  # fmt: skip


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Bytes of the data caches by level, as far as the system tells."""
    found = {}
    for place in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (place / name).read_text(encoding="utf-8").strip() for name in ("level", "type", "size")
            )
            if kind != "Instruction":
                found[int(level)] = int(size[:-1]) * {"K": _KB, "M": _MB}[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return found


def working_sets(folder: Path = _CACHES) -> dict[str, int]:
    """Bytes of the arrays that show the bandwidth of L2, of L3 and of memory."""
    sizes = _cache_sizes(folder)
    l2, l3 = sizes.get(2, _MB), sizes.get(3, 32 * _MB)
    return {"L2": l2 // 2, "L3": min(8 * l2, l3 // 2), "memory": min(max(2 * l3, 512 * _MB), 1536 * _MB)}


@functools.cache
def chains() -> int:
    """How many chains of 64 bytes fill the pipes and stay in registers: 16 of 32, else 6 pairs or 3 quadruples of 16."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 6 if features.get("avx2") else 3


@functools.cache
def _loops() -> tuple[Callable, Callable]:
    """(chain(turns, data), read(turns, data, out)): all steps of the chains, and the sum of all vectors; threads run beside them.

    `data` of the chains: a, b and where each begins, a vector each; they end in the places where they begin. Written out, so that
    every chain is a name: an array of them would lie in memory.
    """
    from numba import njit

    from attnlib.kernels import _simd

    def compiled(name: str, arguments: str, first: list[str], loops: list[str], body: list[str], last: list[str]):
        depth = "    " * (1 + len(loops))
        heads = ["    " * (1 + i) + line for i, line in enumerate(loops)]
        lines = [f"def {name}({arguments}):", "    n = 64 // data.itemsize", *(f"    {line}" for line in first), *heads]
        lines += [*(depth + line for line in body), *(f"    {line}" for line in last)]
        names: dict = {"load": _simd.load_ieee, "fma": _simd.fma, "store": _simd.store_any}
        exec("\n".join(lines), names)
        return njit(nogil=True, error_model="numpy")(names[name])

    count = range(chains())
    chain = compiled(
        "chain", "turns, data", ["a, b = load(data, 0), load(data, n)", *(f"x{i} = load(data, {i + 2} * n)" for i in count)],
        ["for _ in range(turns):"], [f"x{i} = fma(x{i}, a, b)" for i in count],
        [f"store(data, {i + 2} * n, x{i})" for i in count],
    )  # fmt: skip
    each = range(_READERS)
    read = compiled(
        "read", "turns, data, out", [f"x{i} = load(out, 0)" for i in each],
        ["for _ in range(turns):", f"for at in range(0, data.size, {_READERS} * n):"],
        [f"x{i} = x{i} + load(data, at + {i} * n)" for i in each], [f"store(out, 0, {' + '.join(f'x{i}' for i in each)})"],
    )  # fmt: skip
    return chain, read


def _numbers(size: int, dtype: str = "float32") -> np.ndarray:
    """About `size` bytes of small whole numbers, in whole groups of vectors. Written and not merely asked for: pages of zeros are one."""
    data = aligned(size // (_VECTOR * _READERS) * (_VECTOR * _READERS) // np.dtype(dtype).itemsize, dtype)
    data[:] = 1
    data[::7] = 3
    return data


def _chain_data(dtype: str, factor: float, term: float) -> np.ndarray:
    """a, b, and chain i starting at i."""
    rows = np.array([factor, term, *range(chains())], dtype)
    data = aligned(len(rows) * _VECTOR // rows.itemsize, dtype)
    data[:] = rows.repeat(_VECTOR // rows.itemsize)
    return data


@functools.cache
def gate(dtype: str) -> None:
    """Chains and sums are numpy's. Raises AssertionError."""
    chain, read = _loops()
    data, tolerance = _chain_data(dtype, 0.999, 0.001), 1e-4 if dtype == "float32" else 1e-12
    chain(1000, data)
    expected = 1 + (np.arange(chains()) - 1) * 0.999**1000  # 1 is where a chain stays
    if not np.allclose(data.reshape(-1, _VECTOR // data.itemsize)[2:].T, expected, rtol=tolerance, atol=0):
        raise AssertionError(f"the chains in {dtype} do not compute x <- a x + b: no speed is reported")
    data, out = _numbers(_MB, dtype), aligned(_VECTOR // np.dtype(dtype).itemsize, dtype)
    read(2, data, out)
    if not np.isclose(out.sum(dtype=np.float64), 2 * data.sum(dtype=np.float64), rtol=tolerance, atol=0):
        raise AssertionError(f"the sum of what is read in {dtype} is wrong: no speed is reported")


def _on_threads(calls: list[Callable[[], object]]) -> Callable[[], object]:
    """All calls at once, each on a thread of its own that is kept."""
    pool = ThreadPoolExecutor(len(calls))
    return calls[0] if len(calls) == 1 else lambda: [done.result() for done in [pool.submit(call) for call in calls]]


def _case(name: str) -> Case:
    kind, what, *rest = name.split("-")
    threads, peak = 2 if rest else 1, kind == "peak"
    dtype = what if peak else "float32"
    size = 0 if peak else working_sets()[what]
    turns = _TURNS if peak else max(1, _READ // size)

    def prepare() -> Callable[[], object]:
        chain, read = _loops()
        if peak:
            calls = [functools.partial(chain, turns, _chain_data(dtype, 0.999, 0.001)) for _ in range(threads)]
        else:
            calls = [functools.partial(read, turns, _numbers(size), aligned(16, dtype)) for _ in range(threads)]
        return _on_threads(calls)

    if peak:
        work = Work(
            2.0 * turns * chains() * _VECTOR / np.dtype(dtype).itemsize * threads, "operation", 1.0, dtype=dtype
        )
        words = f"chains of multiply-add in {dtype}"
    else:
        work = Work(float(size * turns * threads), "byte", bytes=1.0, level=what)
        words = f"sum of an array of {size / _MB:.3g} MiB, {turns} times"
    return Case(name, words, prepare, work=work, threads=threads, gate=functools.partial(gate, dtype))


def cases(device: str) -> tuple[Case, ...]:
    """Probes of the CPU; none for "cuda", whose figures nobody has measured here."""
    return tuple(map(_case, _PROBES)) if device == "cpu" else ()


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """Two cores against one, for every probe that has both figures."""
    return of_one_unit(median, {f"{p}: two cores / one": (p, f"{p}-2threads", 2.0) for p in _PROBES})
