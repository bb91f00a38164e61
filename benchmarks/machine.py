"""What one core can do at best: the roofs under which the kernels are drawn.

* `peak-*`: independent chains x <- a x + b, in vectors as wide as the processor's; nothing touches memory.
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

from benchmarks.registry import Case, Work

__all__ = ["cases", "ratios", "working_sets"]

_TURNS = 10_000_000  # of the chains, in one call
_READ = 2**31  # bytes that one call reads on each thread
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_KB, _MB = 2**10, 2**20
_READERS = 8  # vectors added up side by side: an addition takes about four cycles, and a cycle can read two vectors


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Bytes of the data caches by level, as far as the system tells."""
    found = {}
    for place in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((place / name).read_text().strip() for name in ("level", "type", "size"))
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
def _shape() -> tuple[int, int]:
    """(bytes of a vector, chains at once): chains that fill the pipes and stay in registers."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 16  # of 32 registers
    return (32, 12) if features.get("avx2") else (16, 12)  # of 16


@functools.cache
def _loops(dtype: str) -> tuple[Callable, Callable, int]:
    """(chains(turns, factor, term, out), sums(data, turns, out), lanes) for float32 or float64; both let threads run.

    `out` takes one vector: the sum of all chains, chain i starting at i, or that of all vectors of `data`.
    """
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic

    width, count = _shape()
    number, element = {"float32": (types.float32, ir.FloatType()), "float64": (types.float64, ir.DoubleType())}[dtype]
    lanes = 8 * width // number.bitwidth
    vector = ir.VectorType(element, lanes)

    def constant(value):
        return ir.Constant(vector, [float(value)] * lanes)

    def spread(builder, value):
        one = builder.insert_element(constant(0), value, ir.IntType(32)(0))
        return builder.shuffle_vector(one, constant(0), ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))

    def place(context, builder, kind, array):
        return builder.bitcast(context.make_array(kind)(context, builder, array).data, vector.as_pointer())

    def store_total(builder, sums, target):
        total = builder.load(sums[0])
        for one in sums[1:]:
            total = builder.fadd(total, builder.load(one))
        builder.store(total, target, align=number.bitwidth // 8)

    @intrinsic
    def run_chains(context, turns, factor, term, out):
        def build(context, builder, signature, values):
            signature_of_fma = ir.FunctionType(vector, [vector] * 3)
            fma = cgutils.get_or_insert_function(
                builder.module, signature_of_fma, f"llvm.fmuladd.v{lanes}f{number.bitwidth}"
            )
            a, b = spread(builder, values[1]), spread(builder, values[2])
            sums = [cgutils.alloca_once_value(builder, constant(i)) for i in range(count)]
            with cgutils.for_range(builder, values[0]):
                for one in sums:
                    builder.store(builder.call(fma, [builder.load(one), a, b]), one)
            store_total(builder, sums, place(context, builder, out, values[3]))
            return context.get_dummy_value()

        return types.void(turns, factor, term, out), build

    @intrinsic
    def add_up(context, data, groups, out):
        def build(context, builder, signature, values):
            source, size = place(context, builder, data, values[0]), ir.IntType(64)
            sums = [cgutils.alloca_once_value(builder, constant(0)) for _ in range(_READERS)]
            with cgutils.for_range(builder, values[1]) as loop:
                for i, one in enumerate(sums):
                    at = builder.add(builder.mul(loop.index, size(_READERS)), size(i))
                    read = builder.load(builder.gep(source, [at]), align=width)
                    builder.store(builder.fadd(builder.load(one), read), one)
            store_total(builder, sums, place(context, builder, out, values[2]))
            return context.get_dummy_value()

        return types.void(data, groups, out), build

    array = types.Array(number, 1, "C")
    group = _READERS * lanes

    @njit((types.int64, number, number, array), nogil=True)
    def chains(turns, factor, term, out):
        run_chains(turns, factor, term, out)

    @njit((array, types.int64, array), nogil=True)
    def sums(data, turns, out):
        for _ in range(turns):
            add_up(data, data.size // group, out)

    return chains, sums, lanes


def _array(size: int, dtype: str = "float32") -> np.ndarray:
    """About `size` bytes of small whole numbers, in whole groups of vectors that start on a vector's boundary.

    Written and not merely asked for: pages of zeros are one page.
    """
    width, item = _shape()[0], np.dtype(dtype).itemsize
    count = size // (width * _READERS) * (width * _READERS) // item
    raw = np.empty(count + width // item, dtype)
    start = -raw.ctypes.data % width // item
    data = raw[start : start + count]
    data[:] = 1
    data[::7] = 3
    return data


@functools.cache
def _gate(dtype: str) -> None:
    """Chains and sums are numpy's. Raises AssertionError."""
    chains, sums, lanes = _loops(dtype)
    out = np.empty(lanes, dtype)
    chains(1000, 0.999, 0.001, out)
    expected = np.arange(_shape()[1], dtype=np.float64)
    for _ in range(1000):
        expected = 0.999 * expected + 0.001
    data = _array(_MB, dtype)
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    if not np.allclose(out, expected.sum(), rtol=tolerance, atol=0):
        raise AssertionError(f"the chains in {dtype} do not compute x <- a x + b: no speed is reported")
    sums(data, 2, out)
    if not np.isclose(out.sum(dtype=np.float64), data.sum(dtype=np.float64), rtol=tolerance, atol=0):
        raise AssertionError(f"the sum of what is read in {dtype} is wrong: no speed is reported")


def _on_threads(calls: list[Callable[[], object]]) -> Callable[[], object]:
    """All calls at once, each on a thread of its own that is kept."""
    if len(calls) == 1:
        return calls[0]
    pool = ThreadPoolExecutor(len(calls))
    return lambda: [done.result() for done in [pool.submit(call) for call in calls]]


def _peak(dtype: str, threads: int) -> Case:
    def prepare() -> Callable[[], object]:
        _gate(dtype)
        chains, _, lanes = _loops(dtype)
        outs = [np.empty(lanes, dtype) for _ in range(threads)]
        return _on_threads([functools.partial(chains, _TURNS, 0.999, 0.001, out) for out in outs])

    operations = 2.0 * _TURNS * _shape()[1] * _shape()[0] / np.dtype(dtype).itemsize * threads
    work = Work(operations, "operation", 1.0, 0.0, "", dtype)
    what = f"chains of multiply-add in {dtype}, {8 * _shape()[0]}-bit vectors"
    return Case(f"peak-{dtype}{_suffix(threads)}", what, prepare, work=work, threads=threads)


def _read(level: str, threads: int) -> Case:
    size = working_sets()[level]
    turns = max(1, _READ // size)

    def prepare() -> Callable[[], object]:
        _gate("float32")
        _, sums, lanes = _loops("float32")
        arrays = [_array(size) for _ in range(threads)]
        return _on_threads([functools.partial(sums, data, turns, np.empty(lanes, "float32")) for data in arrays])

    work = Work(float(size * turns * threads), "byte", 0.0, 1.0, level)
    what = f"sum of an array of {size / _MB:.3g} MiB, {turns} times"
    return Case(f"read-{level}{_suffix(threads)}", what, prepare, work=work, threads=threads)


def _suffix(threads: int) -> str:
    return "" if threads == 1 else f"-{threads}threads"


def cases(device: str) -> tuple[Case, ...]:
    """Probes of the CPU; none for "cuda", whose figures nobody has measured here."""
    if device != "cpu":
        return ()
    return tuple(
        case
        for threads in (1, 2)
        for case in (
            *(_peak(dtype, threads) for dtype in ("float32", "float64")),
            *(_read(level, threads) for level in ("L2", "L3", "memory")),
        )
    )


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """Two cores against one, for every probe that has both figures."""
    alone = [name for name in median if f"{name}-2threads" in median]
    return {f"{name}: two cores / one": 2 * median[name] / median[f"{name}-2threads"] for name in alone}
