"""Small trainings of attention heads for their tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnlib.kernels.heads import Call, Recorded, advance
from attnlib.single_head import maps

MAPS = (
    maps.SOFTMAX, maps.softmax(0.7), maps.SPARSEMAX, maps.ENTMAX15, maps.HARDMAX, maps.LINEARISED, maps.SIGMOID,
    maps.HALF_PLUS, maps.LINEAR, maps.relu(0.5),
)  # fmt: skip
RULES = {
    "plain": {},
    "heavy ball": {"momentum": 0.8},
    "Nesterov": {"momentum": 0.7, "look_ahead": True},
    "joint": {"prepare": "joint"},
    "blocks": {"prepare": "blocks", "momentum": 0.3},
}


FIELDS = ("coefficients", "output", "attention")


def assert_near(one, other, size=1e-12):
    """To `size` of the largest number."""
    torch.testing.assert_close(one, other, rtol=0, atol=size * other.abs().max().item() + 1e-15)


def assert_follows(got, want, size=1e-12):
    """State, velocity and all that was recorded, to `size` of the largest number."""
    assert got[2].steps == want[2].steps
    for one, other in _pairs(got, want):
        assert_near(one.double(), other, size)


def assert_same_bits(one, other):
    assert one[2].steps == other[2].steps
    assert all(torch.equal(a, b) for a, b in _pairs(one, other))


def _pairs(one, other):
    return [*zip(one[:2], other[:2], strict=True), *((getattr(one[2], k), getattr(other[2], k)) for k in FIELDS)]


@dataclass(frozen=True)
class Heads:
    """Arguments of `advance` in float64, made from dense vectors (R, q, d)."""

    basis: torch.Tensor
    start: torch.Tensor  # (R, Hv + H, q)
    labels: torch.Tensor
    classes: torch.Tensor
    heads: int
    signals: int

    @property
    def n(self) -> int:
        return self.labels.shape[1]

    def run(
        self, implementation: str, steps: int = 6, *, runs=slice(None), start=None, dtype=torch.float64, batch=None,
        device="cpu", **chosen
    ) -> tuple[torch.Tensor, torch.Tensor, Recorded]:  # fmt: skip
        """(coefficients at the end, velocity at the end, what was recorded), on the CPU."""
        basis, classes = self.basis[runs].to(dtype), self.classes[runs].contiguous()
        state = (self.start[runs] if start is None else start).to(dtype).clone()
        labels = self.labels[runs].to(dtype).contiguous()
        chosen = {
            "attention_map": maps.SOFTMAX, "value_step": 0.5, "attention_step": 0.4, "output_scale": 0.8,
            "factors": 1 / (1 + 0.1 * torch.arange(steps, dtype=torch.float64)), "velocity": torch.zeros_like(state),
            "record": range(steps + 1),
            "batches": None if batch is None else self.batches(steps, batch)[runs].contiguous(),
        } | chosen  # fmt: skip
        gram, state, labels, classes = (x.to(device) for x in (basis @ basis.mT, state, labels, classes))
        chosen["velocity"] = chosen["velocity"].to(device)
        if chosen["batches"] is not None:
            chosen["batches"] = chosen["batches"].to(device)
        threads = chosen.pop("threads", None)
        rates = [
            torch.as_tensor(chosen.pop(name), dtype=torch.float64).expand(len(gram))
            for name in ("value_step", "attention_step")
        ]
        call = Call(
            gram, state, labels, classes, torch.stack(rates, 1).to(gram), chosen.pop("factors").double(), heads=self.heads,
            signals=self.signals, **chosen,
        )  # fmt: skip
        seen = advance(call, threads=threads, implementation=implementation)
        kept = (seen.steps, seen.coefficients.cpu(), seen.output.cpu(), seen.attention.cpu())
        return state.cpu(), chosen["velocity"].cpu(), Recorded(*kept)

    def batches(self, steps: int, size: int) -> torch.Tensor:
        """(R, steps, size): random samples, each at most once in a step."""
        draw = torch.Generator().manual_seed(7)
        shape = len(self.basis), steps, self.n
        return torch.rand(shape, generator=draw).argsort(-1)[..., :size].contiguous()


def training(
    n: int,
    heads: int = 1,
    *,
    shared: bool = False,
    signals: int = 2,
    start_vectors: int = 2,
    runs: int = 2,
    seed: int = 0,
) -> Heads:
    """Random signals and noise of norm about 1.5; start vectors of norm one, mixed at random into every v_h and p_h."""
    draw = torch.Generator().manual_seed(seed)
    q, d = signals + n + start_vectors, n + signals + 7
    columns = heads + (1 if shared else heads)
    basis = torch.randn(runs, q, d, generator=draw, dtype=torch.float64) / d**0.5
    basis[:, : n + signals] *= 1.5
    start = torch.zeros(runs, columns, q, dtype=torch.float64)
    start[..., n + signals :] = torch.randn(runs, columns, start_vectors, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, 2, (runs, n), generator=draw).double() * 2 - 1
    return Heads(basis, start, labels, torch.randint(0, signals, (runs, n), generator=draw), heads, signals)
