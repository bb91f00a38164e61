"""Checks of arguments: one sentence that names the argument, what was expected, what came, and what to do."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, TypeVar

import numpy as np
import torch

from attnlib import limits

_MOST = 2**62
T = TypeVar("T", bound=Callable[..., Any])


def _say(name: str, expected: str, value: object, hint: str) -> str:
    return f"{name} must be {expected}; got {_short(value)}" + (f": {hint}" if hint else "")


def _short(value: object) -> str:
    if isinstance(value, torch.Tensor) and value.ndim:
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return " ".join(shortened(value).split())


# --- by annotation ----------------------------------------------------------------------------------------------------


def checked(thing: T) -> T:
    """A door: a public function, or a dataclass that readers make. Arguments are checked here, and nowhere behind it.

    Those annotated with a class, bool or Callable are checked by this decorator; numbers and texts have ranges, which the function
    checks in its first lines. Numpy's numbers become Python's, and so do arrays and tensors of one number where a number is annotated:
    what a frozen law holds is its own. A ValueError on its way out gets a note with the caller's call.
    """
    if isinstance(thing, type):
        thing.__init__ = checked(thing.__init__)  # type: ignore[misc]
        return thing
    names = tuple(inspect.signature(thing).parameters)

    @functools.cache
    def kinds() -> tuple[dict[str, tuple[type, ...]], set[str]]:
        hints = {name: hint for name, hint in typing.get_type_hints(thing).items() if name in names}
        numbers = {
            name for name, hint in hints.items() if any(x in (int, float) for x in (hint, *typing.get_args(hint)))
        }
        return {name: classes for name, hint in hints.items() if (classes := _classes(hint))}, numbers

    @functools.wraps(thing)
    def call(*args: Any, **given: Any) -> Any:
        kind, numbers = kinds()
        args = tuple(_plain(value, at < len(names) and names[at] in numbers) for at, value in enumerate(args))
        given = {name: _plain(value, name in numbers) for name, value in given.items()}
        named = dict(zip(names, args, strict=False)) | given
        try:
            for name, value in named.items():
                if (classes := kind.get(name)) and not isinstance(value, classes):
                    raise ValueError(_no_instance(name, value, classes))
            return thing(*args, **given)
        except ValueError as error:
            told = ", ".join(f"{name}={_brief(value)}" for name, value in named.items() if name != "self")
            error.__notes__ = [f"in {thing.__module__}.{thing.__qualname__.removesuffix('.__init__')}({told})"]
            raise

    return typing.cast("T", call)


def _brief(value: object) -> str:
    plain = value is None or isinstance(value, int | float | str | tuple | list | torch.Tensor)
    return _short(value) if plain else type(value).__name__


def _plain(value: object, number: bool) -> object:
    if number and isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 0 and str(value.device) != "meta":
        value = value.item()
    return float(value) if isinstance(value, np.floating) else value.item() if isinstance(value, np.generic) else value


def _no_instance(name: str, value: object, classes: tuple[type, ...]) -> str:
    own = type(value)
    homonym = any(c.__name__ == own.__name__ for c in classes)  # two parts have a Sample
    words = {bool: "True or False", torch.Tensor: "a torch tensor", type(None): "None", Callable: "a function"}
    called = [f"{'an' if c.__name__[0] in 'AEIOU' else 'a'} {c.__name__}" for c in classes]
    if homonym:
        called = [f"{text} of {c.__module__}" for text, c in zip(called, classes, strict=True)]
    expected = " or ".join(words.get(c, text) for c, text in zip(classes, called, strict=True))
    got = shortened(value) if bool in classes else own.__name__ + f" of {own.__module__}" * homonym
    return f"{name} must be {expected}; got {got}" + ": use torch.as_tensor" * (torch.Tensor in classes)


def _classes(hint: Any) -> tuple[type, ...]:
    """The classes of an annotation. None where it is not strict: numbers, texts and sequences are checked inside."""
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    bare: list[Any] = [
        origin if (origin := typing.get_origin(member)) in (Callable, Mapping) else member for member in members
    ]
    bare += [str] if Path in bare else []  # wherever a path is taken, so is its text
    ours = str not in members and all(
        isinstance(m, type) and m not in (Any, int, float, object, torch.dtype, torch.device) for m in bare
    )
    return tuple(bare) if ours else ()


# --- numbers and texts ------------------------------------------------------------------------------------------------


def whole_number(name: str, value: object, *, at_least: int, at_most: float | None = None, hint: str = "") -> int:
    """`value`, Python's or numpy's, as an int >= `at_least`. Raises ValueError otherwise (a bool is not a number, 2.0 not whole).

    Seeds may have any size; what counts something is at most 2^62, so that int64 holds it, unless `at_most` says otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise ValueError(_say(name, f"a whole number >= {at_least}", value, hint))
    most = at_most if at_most is not None else math.inf if name == "seed" else _MOST
    if value > most:
        raise ValueError(_say(name, f"a whole number <= {'2^62' if most == _MOST else most}", value, hint))
    return int(value)


def origin(seed: object, runs: object = 1, first_run: object = 0) -> None:
    """Raises ValueError unless these name runs `first_run` ... `first_run + runs - 1` of an experiment."""
    whole_number("seed", seed, at_least=0)
    whole_number("runs", runs, at_least=1)
    whole_number("first_run", first_run, at_least=0)


def recorded_steps(record: Iterable[int] | None, steps: int) -> tuple[int, ...]:
    """The steps of a training to keep, increasing: those of `record` and the last; all of 0 ... `steps` without a record.

    Raises ValueError for a step that is not a whole number in 0 ... `steps`.
    """
    if record is None:
        limits.require_memory(lambda steps: 36 * steps, steps=steps)
        return tuple(range(steps + 1))
    return tuple(sorted({*steps_within(record, steps), steps}))


def steps_within(record: Iterable[int], last: int) -> tuple[int, ...]:
    """The steps of `record`, increasing, each once. Raises ValueError unless all are whole numbers in 0 ... `last`."""
    if not isinstance(record, Iterable) or isinstance(record, str) or getattr(record, "ndim", 1) == 0:
        raise ValueError(_say("record", f"a list of steps in 0 ... {last}", record, ""))
    for step in (record := tuple(record.tolist() if isinstance(record, torch.Tensor) else record)):
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step <= last:
            raise ValueError(f"record must hold steps in 0 ... {last}; got {shortened(step)}")
    return tuple(sorted(set(map(int, record))))


def _number(value: object) -> float:
    """`value` as a float; nan unless it is a real number of Python or numpy, or a tensor of one (not a bool, not a text)."""
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 0 and str(value.device) != "meta":
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    return math.inf if isinstance(value, int) and abs(value) > _MOST else float(value)


def finite_number(name: str, value: object, *, hint: str = "") -> float:
    """`value` as a finite float. Raises ValueError otherwise."""
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError(_say(name, "a finite number", value, hint))
    return number


def positive_number(name: str, value: object, *, hint: str = "") -> float:
    """`value` as a finite float > 0. Raises ValueError otherwise."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise ValueError(_say(name, "a finite number > 0", value, hint))
    return number


def step_size(name: str, value: object, *, among: int = 1, like: torch.Tensor | None = None, hint: str = "") -> float:
    """`value` as a finite float > 0 whose share `value / among` is a normal number of the dtype of `like`, float64 without one.

    Products with smaller steps have lost digits, and what is computed from them may be of any size. Raises ValueError otherwise.
    """
    number, dtype = positive_number(name, value, hint=hint), torch.float64 if like is None else like.dtype
    if number < (least := among * torch.finfo(dtype).tiny):
        lost = f"products with a smaller number lose digits of {str(dtype).removeprefix('torch.')}"
        raise ValueError(_say(name, f"at least {least:.2g} here", value, lost))
    return number


def length(name: str, value: object) -> float:
    """`value` as a float whose square is a normal number: in [1e-150, 1e150]. Raises ValueError otherwise."""
    number = positive_number(name, value)
    if not 1e-150 <= number <= 1e150:
        raise ValueError(_say(name, "in [1e-150, 1e150]", value, "beyond that its square is no double of all digits"))
    return number


def not_negative(name: str, value: object, *, at_most: float = math.inf) -> float:
    """`value` as a finite float in [0, `at_most`]. Raises ValueError otherwise."""
    number = finite_number(name, value)
    if not 0 <= number <= at_most:
        raise ValueError(_say(name, ">= 0" if number < 0 else f"at most {at_most:g}", value, ""))
    return number


def probability(name: str, value: object, *, high: float = 1.0, open_ends: bool = False, hint: str = "") -> float:
    """`value` as a float in [0, high], or in (0, high) with `open_ends`. Raises ValueError otherwise."""
    number = _number(value)
    inside = 0 < number < high if open_ends else 0 <= number <= high
    if not inside:
        interval = f"(0, {high:g})" if open_ends else f"[0, {high:g}]"
        raise ValueError(_say(name, f"in {interval}", value, hint))
    return number


def decay_rates(betas: object) -> tuple[float, float]:
    """Adam's two decay rates as floats in [0, 1). Raises ValueError otherwise."""
    pair = tuple(map(_number, betas)) if isinstance(betas, tuple | list) else ()
    if len(pair) != 2 or not all(0 <= beta < 1 for beta in pair):
        raise ValueError(_say("betas", "in [0, 1), two numbers", betas, "with 1 the averages never start"))
    return pair[0], pair[1]


def one_of(name: str, value: object, valid: Sequence[str]) -> str:
    """`value`, which must be one of `valid`. Raises ValueError that lists them."""
    if not isinstance(value, str) or value not in valid:
        raise ValueError(_say(name, "one of " + ", ".join(map(repr, valid)), value, ""))
    return value


# --- tensors ----------------------------------------------------------------------------------------------------------


def signs(name: str, value: object, shape: tuple[int | str, ...], *, like: torch.Tensor) -> torch.Tensor:
    """A `tensor` of labels, +1 or -1. Raises ValueError otherwise, also for 0 and 1."""
    found = tensor(name, value, shape, like=like)
    if not (found.abs() == 1).all():
        raise ValueError(f"{name} must be +1 or -1; got something else: labels 0 and 1 become 2 * labels - 1")
    return found


def tensor(
    name: str, value: object, shape: tuple[int | str, ...], *, like: torch.Tensor | None = None, whole: bool = False,
    finite: bool = False,
) -> torch.Tensor:  # fmt: skip
    """A floating or int64 tensor of the given shape. Numbers fix a size; a letter stands for any size >= 1.

    `like`: a tensor whose dtype (if floating) and device are demanded too. `finite`: so must all numbers be. Raises ValueError
    otherwise.
    """
    wanted = "(" + ", ".join(map(str, shape)) + ")"
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"{name} must be a torch tensor of shape {wanted}; got {type(value).__name__}: use torch.as_tensor"
        )
    if not (value.dtype == torch.int64 if whole else value.is_floating_point()):
        kind, to = ("an int64", "int64") if whole else ("a floating-point", "float64")
        raise ValueError(f"{name} must be {kind} tensor; got {value.dtype}: use .to(torch.{to})")
    fits = value.ndim == len(shape) and all(
        have >= 1 if isinstance(want, str) else want == have for want, have in zip(shape, value.shape, strict=False)
    )
    if not fits:
        swapped = sorted(map(str, shape)) == sorted(map(str, value.shape))
        hint = ": swap the axes?" if swapped else ": an axis is empty" if 0 in value.shape else ""
        raise ValueError(f"{name} must have shape {wanted}; got {tuple(value.shape)}{hint}")
    if value.layout != torch.strided:
        raise ValueError(f"{name} must be a dense tensor; got {value.layout}: use .to_dense()")
    if like is not None and (value.device != like.device or not (whole or value.dtype == like.dtype)):
        dtype = value.dtype if whole else like.dtype
        raise ValueError(
            f"{name} must have dtype {dtype} on {like.device}; got {value.dtype} on {value.device}: use .to(...)"
        )
    if finite and (value.is_meta or not value.isfinite().all()):
        raise ValueError(f"{name} must be finite; got nan or infinity: did a training diverge?")
    return value


def fitting(values: Mapping[str, Any], like: torch.Tensor | None = None, **axes: str) -> None:
    """Raises ValueError unless the tensors of these names have these axes, and where it is given the dtype and device of `like`.

    A letter is one size throughout; "..." stands for any leading axes, the same throughout, "*" for any that broadcast. Without this a
    size of 1 is taken for any.
    """
    known: dict[str, Any] = {}
    for name, text in axes.items():
        letters, value = text.split(), values[name]
        if letters[0] in ("...", "*"):
            own = getattr(value, "shape", ())[: 1 - len(letters)]
            letters[:1] = own if letters[0] == "*" else known.setdefault("...", own)
        found = tensor(name, value, tuple(known.get(x, x) for x in letters), like=like)
        known |= dict(zip(letters, found.shape, strict=True))


def numbers(name: str, value: object) -> torch.Tensor:
    """`value`, a number, list, array or tensor, as a float64 tensor of finite numbers. Raises ValueError otherwise."""
    found = torch.empty(0, device="cpu")
    with contextlib.suppress(TypeError, ValueError, RuntimeError, OverflowError):
        if isinstance(value, torch.Tensor):
            found = found if value.is_complex() or value.dtype == torch.bool else value.to(torch.float64)
        elif (array := np.asarray(value)).dtype.kind in "iufO":
            found = torch.from_numpy(
                array.astype(np.float64)
            )  # a copy: torch takes no array that is backwards or read-only
    if found.numel() == 0 or found.is_meta or not found.isfinite().all():
        raise ValueError(_say(name, "finite numbers", value, ""))
    return found
