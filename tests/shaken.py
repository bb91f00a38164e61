"""A pytest plugin, `-p tests.shaken`: exp, log and erf of numpy, torch and math are off by a relative 2^-46 at random.

Another processor's library is off by 2^-52 or so, and so is its next release. What a test says must hold for all of them, with
something to spare. The factor is drawn from the bits of the result: equal calls still give equal results. Loops that numba
compiled have functions of their own and stay as they are: where they are compared with torch to 1e-12, 2^-40 would be too much.
"""

import math

import dask.array  # noqa: F401  asks at its import whether numpy's functions are ufuncs
import numba
import numpy as np
import torch
from numba.core.typing.context import BaseContext

SIZE = 2.0**-46
_MIX = np.int64(-7046029254386353131)  # an odd number that spreads the bits of its multiples: 2^64 / golden ratio


def shaken(values: np.ndarray) -> np.ndarray:
    """`values` (float64), each times 1 + u 2^-46 with u in [-1, 1) from its own bits. Powers of two, which any library has exact, stay."""
    with np.errstate(all="ignore"):
        bits = np.ascontiguousarray(values).view(np.int64) * _MIX
        return np.where(
            (np.frexp(values)[0] == 0.5) | ~np.isfinite(values), values, values * (1 + SIZE * (bits / 2.0**63))
        )


def _of_numpy(function: np.ufunc):
    class Shaken:
        """Called as the ufunc is; `reduce`, `outer` and the like are the ufunc's own."""

        unshaken = function

        def __call__(self, *arguments, **options):
            found = function(*arguments, **options)
            if getattr(found, "dtype", None) != np.float64:
                return found
            moved = shaken(np.asarray(found)).reshape(np.shape(found))
            if isinstance(found, np.ndarray):
                found[...] = moved
                return found
            return np.float64(moved)

        def __getattr__(self, name: str):
            return getattr(function, name)

    return Shaken()


def _of_torch(function):
    def call(*arguments, **options):
        found = function(*arguments, **options)
        if found.dtype != torch.float64 or torch.compiler.is_compiling():
            return found
        plain = found.detach().cpu()
        moved = torch.from_numpy(shaken(plain.numpy()).reshape(plain.shape)).to(found.device)
        return found + (moved - found.detach()).nan_to_num(0.0, 0.0, 0.0)

    return call


def _of_math(function):
    def call(*arguments):
        return shaken(np.array(function(*arguments), dtype=np.float64)).item()

    call.unshaken = function
    return call


def _compiles(resolve):
    """numba's table of types, which knows the libraries' own functions only."""
    return lambda self, value: resolve(self, getattr(value, "unshaken", value))


numba.njit(lambda x: math.exp(x))(0.5)  # it fills the table when it first compiles
BaseContext.resolve_value_type = _compiles(BaseContext.resolve_value_type)
for name in ("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "power", "logaddexp"):
    setattr(np, name, _of_numpy(getattr(np, name)))
for name in ("exp", "expm1", "log", "log1p", "erf", "erfc", "pow", "log10", "log2"):
    setattr(math, name, _of_math(getattr(math, name)))
for place in (torch, torch.Tensor, torch.special):
    for name in ("exp", "expm1", "log", "log1p", "erf", "erfc", "erfinv", "logsumexp", "sigmoid"):
        if hasattr(place, name):
            setattr(place, name, _of_torch(getattr(place, name)))
