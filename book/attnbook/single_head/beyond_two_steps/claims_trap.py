r"""Claims L1, L3-L5, L9, L10, L18 and L19 of page I.14: the flow's boundaries on the head itself, the trap, large steps.

Proofs: theory of the long run.
"""

from dataclasses import replace

import numpy as np
import torch

from attnbook.single_head.beyond_two_steps.boundaries import DIMENSIONS, TrapStudy
from attnbook.single_head.beyond_two_steps.claims import both_right, share_right, tensor
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, NothingToMeasure, both, on_grid, within

TRAP_CLAIMS = ClaimSet("single_head")


def _no_chance(right: np.ndarray, what: str) -> Evidence:
    """Runs without randomness: every one is as predicted."""
    evidence = within(torch.as_tensor(right, dtype=torch.float64).flatten(), low=1.0, share=1)
    return replace(
        evidence, predicted=f"all {right.size} {what}", measured=f"{int(right.sum())} of {right.size}",
        rule="runs without chance: each of them", numbers={"share": float(right.mean())},
    )  # fmt: skip


@TRAP_CLAIMS.claim("L3", wrong=0.0, source=Source.MEASURED, box="thm-long-map thm-long-trap", uses="L4 thm-long-map")
def boundary_of_the_head(study: TrapStudy, constant: float) -> Evidence:
    r"""the threshold of the flow is the threshold of the trained head
    on orthogonal noise tokens of equal norm, with small steps, the head ends on the noise at $0.99\,x^*$ and on the signal at $1.01\,x^*$,
    for $\eta = 0.05, 0.1, 0.2, 0.3$, with $x^*$ from the solver of the six equations: its own threshold is $x^*$ up to 1 %
    wrong: $x_1$ of the first move in place of $x^*$"""
    fates = study.fates["x*" if constant else "x1"]
    return on_grid(_no_chance(fates == np.array([[False], [True]]), "runs end on their side of the boundary"), 0.01)


@TRAP_CLAIMS.claim("L5", wrong=0.0, box="thm-long-first-move", uses="thm-long-map")
def first_move_changes_sign(study: TrapStudy, constant: float) -> Evidence:
    r"""where the first move of attention changes its direction
    in the flow the attention of clean samples first moves towards the signal iff $x > x_1 = \frac{\nu + \sqrt{\nu^2 +
    (1-\nu)^2}}{(1-\nu)^2}$, with $\nu = \eta/(1-\eta)$; checked up to 0.2 %: on the trained head with orthogonal noise, at $0.998\,x_1$ and
    $1.002\,x_1$, $\eta = 0.05, 0.1, 0.2, 0.3$, step $n/1000d$
    wrong: $x^*$ in place of $x_1$"""
    moves = study.moves["x1" if constant else "x*"]
    return on_grid(_no_chance((moves > 0) == np.array([[False], [True]]), "first moves have the predicted sign"), 0.002)


@TRAP_CLAIMS.claim("L18", wrong=0.0, source=Source.MEASURED, box="thm-long-first-move", uses="L3 L5")
def first_is_not_last(study: TrapStudy, constant: float) -> Evidence:
    r"""the first move does not decide the outcome
    half-way between $x^*$ and $x_1$ (geometric mean) the attention of the head first moves towards one token and ends on the other: first
    towards the noise, and in the end on the signal, at $\eta = 0.1, 0.2, 0.3$, the reverse at $\eta = 0.4$ (orthogonal noise, small steps)
    wrong: as far from $x^*$ on its other side"""
    move, signal = study.between["between" if constant else "mirrored"]
    return _no_chance((move > 0) != signal, "runs end against their first move")


@TRAP_CLAIMS.claim("L19", wrong=0.0, box="thm-long-finite-trap")
def trap_at_finite_d(study: TrapStudy, constant: float) -> Evidence:
    r"""the trap at finite d
    for Gaussian noise, $\eta = 0.2$, $x$ near $1.25$, $n = 40$, $d = 10^5$ and $10^8$: if a class is at some step in the smaller trap of
    the theorem, with $z$, $z'$ the largest cross terms of its later steps, its clean samples $i$ and flipped samples $j$ satisfy $V \le
    t_i$, $s_i \le \sigma_c$, $V + t_j \ge 0$, $s_j \le \sigma_n$ from there on, without exception
    wrong: classes with $x$ near 4, to which the theorem does not apply"""
    if constant:
        classes = [record for d in DIMENSIONS[1:] for draw in study.trapped[d] for record in draw if record.entry > 0]
    else:
        classes = [record for draw in study.free for record in draw]
    if not classes:
        raise NothingToMeasure("needs a class of which the theorem speaks")
    worst = torch.tensor([record.worst for record in classes], dtype=torch.float64)
    evidence = within(worst, high=1e-12, quantity="largest violation", share=1)
    kept = int((worst <= 1e-12).sum())
    return replace(
        evidence, measured=f"{kept} of {len(classes)} classes without one", numbers={"kept": kept / len(classes)}
    )


# --- gradient descent of any step size, and large steps ----------------------------------------------------------------------


@TRAP_CLAIMS.claim("L1", wrong=1.2, box="thm-long-no-noise", uses="thm-long-map")
def one_way(study: TrapStudy, constant: float) -> Evidence:
    r"""without label noise attention moves in one direction only
    for $\eta = 0$, orthogonal noise tokens of equal norm and start at zero, no step, of any size, lowers the attention on the signal if $x
    = \rho^2|C_k|/d > 1$, and no step raises it if $x < 1$
    wrong: the threshold at x = 1.2"""
    x, moves = study.zero_moves
    towards = torch.sign(x - constant).unsqueeze(1) * moves
    evidence = within(towards, low=-1e-12, quantity="moves towards the predicted side", share=1)
    against = int((towards < -1e-12).sum())  # a saturated weight does not move: rounding only
    return replace(
        evidence, measured=f"{against} of {towards.numel()} moves against it", rule="proved: every step of every sample"
    )


@TRAP_CLAIMS.claim("L4", wrong=1.9, box="thm-long-trap", uses="thm-long-map")
def trap_is_invariant(study: TrapStudy, constant: float) -> Evidence:
    r"""the trap is never left
    on orthogonal noise tokens of equal norm the set $\{V \le t_c,\ s_c \le \tfrac1{1+x},\ s_n \le \tfrac1{1+\nu x},\ V + t_n \ge 0\}$ is
    invariant under gradient descent, for every step size, every $x > 0$ and every $\eta \in [0, \tfrac12]$
    wrong: a set 1.9 times wider in s_c"""
    x, nu, states = study.flow_runs
    V, t_c, t_n, P, q_c, q_n = states.unbind(-1)
    s_c, s_n = torch.sigmoid(P - q_c), torch.sigmoid(P - q_n)
    x, nu = x.unsqueeze(1), nu.unsqueeze(1)
    inside = (V <= t_c) & (s_c <= constant / (1 + x)) & (s_n <= 1 / (1 + nu * x)) & (V + t_n >= 0)
    exits = (inside[:, :-1] & ~inside[:, 1:]).double().sum(1)
    trapped = int((inside[:, -1] & (x[:, 0] > 1)).sum())
    evidence = within(exits, high=0.0, quantity="exits", share=1)
    return replace(evidence, measured=f"{int(exits.sum())} exits; {trapped} runs with x > 1 end inside")


@TRAP_CLAIMS.claim("L9", wrong=0.0, source=Source.MEASURED, box="thm-long-trap", uses="L4")
def step_size_trap(study: TrapStudy, constant: float) -> Evidence:
    r"""a large first step leads into the trap
    at $\eta = 0.2$, $x = 4$, $n = 200$, $d = 40000$, from zero with $\beta = 5n/d$ at least 87 % of classes end on noise; after
    500 steps of $n/5d$ the same step size keeps both classes on the signal in at least 95 % of draws
    wrong: the two runs exchanged"""
    runs = study.plain.on_signal, study.warm.on_signal
    plain, warm = runs if constant else runs[::-1]
    found = both_right(warm, 0.95, "classes on the signal, warm")
    return both(found, share_right(~plain, 0.87, "classes on noise, plain"))


@TRAP_CLAIMS.claim("L10", wrong=0.0, source=Source.MEASURED, uses="R3")
def no_upper_bound(study: TrapStudy, constant: float) -> Evidence:
    r"""the upper limit of the SNR depends on the step size
    at $\eta = 0.05$, $x = 400$, $n = 100$, $d = 40000$, with $x\,\beta d/n = 2$, every label is fitted and the clean error is below
    $10^{-150}$ after 1500 steps, in at least 95 % of draws
    wrong: the step size n/5d, whatever the signal
    coarse: the exponent varies by a factor of seven with the label counts of a draw, and no formula for it is known"""
    fates = study.strong_small if constant else study.strong_large
    fitted = np.where(fates.train_accuracy == 1, fates.log10_error, 0.0)
    return within(tensor(fitted), high=-150.0, quantity="log₁₀ err (0 if not interpolating)")
