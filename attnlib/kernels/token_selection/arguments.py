"""What the token-selection loop is given and gives back, checked once for all implementations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch

from attnlib import checks
from attnlib.kernels.calls import MOST_STEPS, changed, moments, settle

__all__ = ["TRAINED", "Call", "Recorded"]

TRAINED = ("both", "p", "W")
_SYMMETRY = (
    1e-3  # of the largest entry: far above the rounding of long float32 trainings, far below a wrong order of rows
)


@dataclass(frozen=True)
class Recorded:
    """The state at the recorded moments.

    Args:
        steps: (M,) after how many steps of the call, increasing.
        values: (M, R, P), rows like the `values` of the call: scores, passive rows, coordinates.
        prompt_norm_squared: (M, R), |p|^2.
    """

    steps: tuple[int, ...]
    values: torch.Tensor
    prompt_norm_squared: torch.Tensor


def _range(x: torch.Tensor) -> tuple[int, int]:
    return x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()


def _check_place(tensors: dict[str, torch.Tensor], state: Sequence[str]) -> None:
    """The state is changed in place: it must lie row by row, apart from everything else, and outside autograd."""
    for name in state:
        x = tensors[name]
        if not x.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous: it is changed in place; got strides {x.stride()}: use .contiguous()"
            )
        if x.requires_grad:
            raise ValueError(f"{name} must not require gradients: it is changed in place; use .detach()")
        low, high = _range(x)
        for other, y in tensors.items():
            start, end = _range(y) if y.is_contiguous() else (0, 0)
            if other != name and low < end and start < high:
                raise ValueError(
                    f"{name} and {other} share memory, and {name} is changed in place: pass {other}.clone()"
                )


def _check_finite(tensors: dict[str, torch.Tensor]) -> None:
    for name, x in tensors.items():
        # One pass without a copy; only a sum that overflowed needs the second look.
        if not bool(torch.isfinite(x.detach().sum())) and not bool(torch.isfinite(x).all()):
            run = int((~torch.isfinite(x)).flatten(1).any(1).nonzero()[0]) if x.ndim > 1 else 0
            where = f"run {run}" if x.ndim > 1 else f"runs {(~torch.isfinite(x)).nonzero().flatten().tolist()}"
            raise ValueError(f"{name} must be finite; {where} has nan or inf: did a training diverge?")


def _check_symmetric(tensors: dict[str, torch.Tensor], N: int) -> None:
    """The fast loops read one half of these squares. One product from either side, instead of a transposed copy."""
    for name, x in tensors.items():
        square, row = (
            x.detach()[:, :N],
            torch.arange(1, N + 1, dtype=x.dtype, device=x.device).cos().expand(len(x), 1, N),
        )
        by_row, by_column = torch.bmm(row, square).squeeze(1), torch.bmm(square, row.mT).squeeze(2)
        if not bool((by_row - by_column).abs().max() <= _SYMMETRY * N**0.5 * square.abs().max()):
            raise ValueError(
                f"{name} must be symmetric in its first N = {N} rows: they are inner products of the training tokens with "
                "each other, sample by sample, token by token"
            )


def _step_sizes(step_size: float | Sequence[float] | torch.Tensor, steps: int) -> torch.Tensor:
    one = not isinstance(step_size, Sequence | torch.Tensor) or isinstance(step_size, str)
    one = one or (isinstance(step_size, torch.Tensor) and step_size.ndim == 0)
    if one:
        return torch.full((steps,), checks.positive_number("step_size", step_size), dtype=torch.float64)
    sizes = torch.as_tensor(step_size, dtype=torch.float64).detach().cpu()
    if sizes.shape != (steps,):
        raise ValueError(f"step_size must be a number or one per step, ({steps},); got shape {tuple(sizes.shape)}")
    if not bool((torch.isfinite(sizes) & (sizes > 0)).all()):
        raise ValueError("step_size must hold finite numbers > 0 only")
    return sizes


@dataclass(frozen=True)
class Call:
    """Arguments of `attnlib.kernels.token_selection.advance`, which says what is computed of them.

    Args:
        values: u, (R, P), with P = rows or, with coordinates, rows + 2 N + 1. float32 or float64 (the reference takes any);
            all tensors have one dtype and device. Changed in place.
        weighted: S, (R, P, N). Left as it is when W stays (trained "p"), and not used when p stays ("W"). Changed in place.
        prompt_norm_squared: pi = |p|^2, (R,). Changed in place.
        kernel: K, (R, rows, N), rows >= N: inner products of the training tokens and the passive rows with the training tokens.
            Like `weighted` symmetric in its first N rows.
        head_scores: gamma, (R, n, T).
        labels: observed labels, +1 or -1, (R, n).
        step_size: alpha > 0, or one per step, (steps,).
        steps: >= 0.
        trained: "both", "p" (W stays) or "W" (p stays).
        record: moments to keep, as numbers of steps of this call, 0 ... steps (0 is the start).

    Raises ValueError on a wrong argument.
    """

    values: torch.Tensor
    weighted: torch.Tensor
    prompt_norm_squared: torch.Tensor
    kernel: torch.Tensor
    head_scores: torch.Tensor
    labels: torch.Tensor
    step_size: float | Sequence[float] | torch.Tensor
    steps: int
    trained: str = "both"
    record: tuple[int, ...] = ()  # as given; then sorted, each step once
    step_sizes: torch.Tensor = field(init=False)  # (steps,), float64 on the CPU

    def __post_init__(self) -> None:
        values, weighted, prompt_norm_squared = self.values, self.weighted, self.prompt_norm_squared
        kernel, head_scores, labels = self.kernel, self.head_scores, self.labels
        runs, n, tokens = checks.tensor("head_scores", head_scores, ("R", "n", "T")).shape
        for letter, size in (("R", runs), ("n", n), ("T", tokens)):
            if size < 1:
                raise ValueError(
                    f"head_scores must have shape (R, n, T) with {letter} >= 1; got {tuple(head_scores.shape)}"
                )
        like, N = head_scores, n * tokens
        rows = checks.tensor("kernel", kernel, (runs, "rows", N), like=like).shape[1]
        if rows < N:
            raise ValueError(f"kernel must have at least N = n T = {N} rows, the training tokens first; got {rows}")
        probes = checks.tensor("values", values, (runs, "P"), like=like).shape[1]
        if probes not in (rows, rows + 2 * N + 1):
            raise ValueError(
                f"values must have one row per row of kernel, {rows}, or 2 N + 1 more with coordinates, {rows + 2 * N + 1}; got {probes}"
            )
        checks.tensor("weighted", weighted, (runs, probes, N), like=like)
        checks.tensor("prompt_norm_squared", prompt_norm_squared, (runs,), like=like)
        checks.tensor("labels", labels, (runs, n), like=like)
        tensors = {
            "values": values, "weighted": weighted, "prompt_norm_squared": prompt_norm_squared, "kernel": kernel,
            "head_scores": head_scores, "labels": labels,
        }  # fmt: skip
        _check_place(tensors, ("values", "weighted", "prompt_norm_squared"))
        _check_finite(tensors)
        _check_symmetric({"weighted": weighted, "kernel": kernel}, N)
        if not bool((labels.abs() == 1).all()):
            raise ValueError("labels must be +1 or -1, the observed labels")
        if checks.whole_number("steps", self.steps, at_least=0) > MOST_STEPS:
            raise ValueError(f"steps must be at most {MOST_STEPS}; got {self.steps}: call again from where it ended")
        checks.one_of("trained", self.trained, TRAINED)
        marks = moments(self.record, int(self.steps))
        fixed = {name: tensors[name].detach().contiguous() for name in ("kernel", "head_scores", "labels")}
        sizes = _step_sizes(self.step_size, int(self.steps))
        settle(self, **fixed, step_sizes=sizes, steps=int(self.steps), record=marks)

    @property
    def runs(self) -> int:
        return self.values.shape[0]

    @property
    def follows_coordinates(self) -> bool:
        return self.values.shape[1] > self.kernel.shape[1]

    def part(self, runs: slice) -> Call:
        """The same for some of the runs: views, so that the state still changes in place."""
        tensors = [f.name for f in fields(self)[:6]]
        return changed(self, **{name: getattr(self, name)[runs] for name in tensors})

    def piece(self, first: int, record: Sequence[int]) -> Call:
        """Steps `first` ... record[-1] - 1 of the call, recording these of its steps, which increase."""
        sizes = self.step_sizes[first : record[-1]]
        return changed(self, step_sizes=sizes, steps=len(sizes), record=tuple(m - first for m in record))

    def empty_record(self) -> Recorded:
        moments = len(self.record)
        return Recorded(
            self.record,
            self.values.new_empty(moments, *self.values.shape),
            self.prompt_norm_squared.new_empty(moments, self.runs),
        )
