"""Training of attention heads in Gram coordinates, 64 runs at once, against the same steps as batched products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch

from attnlib.kernels.heads import Call, advance
from attnlib.single_head import maps
from benchmarks.registry import Case, Work, of_one_unit

__all__ = ["cases", "gate", "ratios"]

_STEP = 0.5
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_RULES = {  # heads, rule of the case's name
    "h1": (1, {}),
    "h4": (4, {}),
    "h1-nesterov": (1, {"momentum": 0.9, "look_ahead": True}),
    "h1-normalised": (1, {"prepare": "joint"}),
}
# Of "a", a single head of 200 samples, and of heads of 100 samples: runs and steps of a fast form, steps of a batched one.
_SIZES = {("a", "cpu"): (64, 1000, 20), ("a", "cuda"): (1056, 20_000, 20), ("heads", "cpu"): (64, 10_000, 100),
          ("heads", "cuda"): (64, 10_000, 100)}  # fmt: skip


def _data(runs: int, n: int, heads: int, dtype: torch.dtype, device: str, start: float = 0.1) -> list[torch.Tensor]:
    """Gram matrices of signals, noise and starts of norm one, a start of every vector, labels, classes; scores of size one."""
    draw = torch.Generator().manual_seed(0)
    columns = 2 * heads
    q = n + 2 + columns
    basis = torch.randn(runs, q, 2 * q, generator=draw, dtype=torch.float64) / (2 * q) ** 0.5
    labels = torch.randint(0, 2, (runs, n), generator=draw).double() * 2 - 1
    classes = torch.randint(0, 2, (runs, n), generator=draw)
    state = torch.zeros(runs, columns, q, dtype=torch.float64)
    state[..., -columns:] = start * torch.eye(columns, dtype=torch.float64)
    return [*(x.to(device, dtype) for x in (basis @ basis.mT, state, labels)), classes.to(device)]


def naive_torch(
    gram: torch.Tensor, coefficients: torch.Tensor, labels: torch.Tensor, classes: torch.Tensor, steps: int
) -> torch.Tensor:
    """Gradient descent of H softmax heads as one writes it with batched tensors: one torch.bmm a step, all runs at once."""
    state, heads, n = coefficients.clone(), coefficients.shape[1] // 2, labels.shape[1]
    index, noise, rate = classes.unsqueeze(1).expand(-1, 2 * heads, -1), slice(2, 2 + n), _STEP / n
    for _ in range(steps):
        scores = torch.bmm(state, gram)
        gap = scores.gather(2, index) - scores[..., noise]
        weight = torch.sigmoid(gap[:, heads:])
        output = (scores[:, :heads, noise] + weight * gap[:, :heads]).sum(1)
        pull = (rate * labels * torch.sigmoid(-labels * output)).unsqueeze(1)
        turn = pull * weight * (1 - weight) * gap[:, :heads]
        state[..., noise] += torch.cat([pull * (1 - weight), -turn], dim=1)
        state.scatter_add_(2, index, torch.cat([pull * weight, turn], dim=1))
    return state


def _fast(data: list[torch.Tensor], steps: int, rule: Mapping[str, object], **chosen) -> torch.Tensor:
    gram, state, labels, classes = data
    call = Call(
        gram, state, labels, classes, gram.new_full((len(gram), 2), _STEP), torch.ones(steps, dtype=torch.float64),
        heads=state.shape[1] // 2, signals=2, attention_map=maps.SOFTMAX, **rule,
    )  # fmt: skip
    advance(call, **chosen)
    if state.is_cuda:
        torch.cuda.synchronize()
    return state


@functools.cache
def gate(device: str) -> None:
    """All forms end in one place after thirty steps. Raises AssertionError."""
    for heads in (1, 4):
        want = naive_torch(*_data(3, 50, heads, torch.float64, device), 30)
        for name, dtype in _DTYPES.items():
            data = _data(3, 50, heads, dtype, device)
            found = {"torch": naive_torch(*data, 30), "kernel": _fast([x.clone() for x in data], 30, {})}
            for form, state in found.items():
                if not torch.allclose(state.double(), want, rtol=0, atol=1e-6 if name == "float32" else 1e-13):
                    raise AssertionError(f"{form} in {name} leaves the float64 loop: no speed is reported")
        for rule in (rule for count, rule in _RULES.values() if count == heads):
            data = _data(3, 50, heads, torch.float64, device)
            exact = _fast([x.clone() for x in data], 30, rule, implementation="reference")
            if not torch.allclose(_fast(data, 30, rule), exact, rtol=0, atol=1e-12):
                raise AssertionError(f"the fast form leaves the reference with {rule}: no speed is reported")


def _case(study: str, name: str, form: str, dtype: str, device: str, threads: int = 1) -> Case:
    """`form`: "compiled", "gpu", "reference", or the naive "torch"."""
    runs, steps, few = _SIZES[study, device]
    (heads, rule), n = _RULES[name], 200 if study == "a" else 100
    fast = form in ("compiled", "gpu")
    steps = steps if fast else few

    def prepare() -> Callable[[], object]:
        data = _data(runs, n, heads, _DTYPES[dtype], device)
        if form == "torch":
            return lambda: (naive_torch(*data, steps), torch.cuda.synchronize() if device == "cuda" else None)
        chosen = {"gpu": "triton"}.get(form, form)
        return lambda: _fast(data, steps, rule, threads=threads, implementation=chosen)

    # Of one step of one run: a product of the matrix with 2 H columns, two when the step is normalised; fifty operations a
    # sample and head. The matrix is read once for each product.
    m, products = n + 2, 2 if "prepare" in rule else 1
    work = Work(
        runs * steps, "run-step", products * 4 * heads * m * m + 50 * n * heads, products * m * m * _DTYPES[dtype].itemsize,
        "L2" if fast else "L3" if device == "cpu" else "memory", dtype, "single head" if study == "a" else "attention heads",
    )  # fmt: skip
    middle = dtype if study == "a" else name
    label = f"{study}-{'torch' if form == 'reference' else form}-{middle}{f'-{threads}' * (form == 'compiled' and study == 'a')}"
    words = ", ".join([f"H = {heads}", *(f"{key} {value}" for key, value in rule.items())])
    what = f"{form}, {threads} thread{'s' * (threads > 1)}, {words}: {steps} steps of {runs} runs at n = {n}, {dtype}"
    return Case(label, what, prepare, work, threads, gate=functools.partial(gate, device))


def cases(device: str) -> tuple[Case, ...]:
    """Every form on this device, "cpu" or "cuda"."""
    fast = ("gpu",) if device == "cuda" else ("compiled",)
    found = []
    for dtype in _DTYPES:
        found += [_case("a", "h1", form, dtype, device) for form in (*fast, "torch")]
        if device == "cpu":
            found.append(_case("a", "h1", "compiled", dtype, device, 2))
    found += [_case("heads", name, form, "float64", device) for name in _RULES for form in (*fast, "reference")]
    return tuple(found)


def ratios(median: Mapping[str, float]) -> dict[str, float]:
    """Times of one step of one run, against the batched form."""
    pairs: dict[str, tuple[str, str, float]] = {}
    for name in _DTYPES:
        one = f"a-compiled-{name}-1"
        pairs[f"(a) torch.bmm / compiled, one run-step, {name}"] = (f"a-torch-{name}", one, 1000 / 20)
        pairs[f"(a) torch.bmm / GPU program, one run-step, {name}"] = (f"a-torch-{name}", f"a-gpu-{name}", 20_000 / 20)
        pairs[f"(a) one thread / two threads, {name}"] = (one, f"a-compiled-{name}-2", 1.0)
    for name in _RULES:
        for form, words in (("compiled", "compiled"), ("gpu", "GPU program")):
            key = f"heads, batched torch / {words}, one run-step, {name}"
            pairs[key] = (f"heads-torch-{name}", f"heads-{form}-{name}", 10_000 / 100)
    return of_one_unit(median, pairs)
