r"""Stressed laws: the data law with one assumption of the theory let go, and its two-step theory.

*Unequal classes*: class +1 with probability $\pi$. *Signals* of unequal norm or at an angle: $|\mu_2| = r|\mu_1|$,
$\mu_1\cdot\mu_2 = c\,|\mu_1||\mu_2|$. *Noise* that does not avoid the signals: $\xi \sim N(0, I_d)$. Any combination, any number of tokens.

Both ways to draw stay exact. The signals live in their own plane, and the noise outside that plane is Bartlett's triangle in d - 2
dimensions whatever happens inside it; unprojected noise adds two independent normals per token there. Source: derived.
"""

from dataclasses import dataclass, replace

import torch

from attnlib import checks
from attnlib.single_head.errors import FreshScores, log10_error_of_scores
from attnlib.single_head.law import SignalNoiseLaw


@checks.checked
@dataclass(frozen=True)
class StressedLaw(SignalNoiseLaw):
    """A `SignalNoiseLaw` with further knobs; at their defaults it draws the same numbers. Raises ValueError out of range."""

    class_probability: float = 0.5  # pi in (0, 1), probability of class +1, which holds mu_1
    norm_ratio: float = 1.0  # r > 0, |mu_2| / |mu_1|; signal_norm is |mu_1|
    cosine: float = 0.0  # c in (-1, 1), of the angle between the signals
    noise_avoids_signals: bool = True  # False: noise is N(0, I_d), not projected

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.probability("class_probability", self.class_probability, open_ends=True, hint="both classes must occur")
        checks.positive_number("norm_ratio", self.norm_ratio)
        hint = "parallel signals span no plane"
        if not abs(checks.finite_number("cosine", self.cosine, hint=hint)) < 1:
            raise ValueError(f"cosine must be in (-1, 1); got {self.cosine!r}: {hint}")
        if not isinstance(self.noise_avoids_signals, bool):
            raise ValueError(f"noise_avoids_signals must be True or False; got {self.noise_avoids_signals!r}")


def stretched(law: SignalNoiseLaw, d: int, step_size: float) -> tuple[SignalNoiseLaw, float]:
    """The same law and step size at another dimension with n SNR^2 and a (that is beta d / n) kept."""
    if law.normalised_noise:  # the SNR is the signal norm there, and noise tokens have norm 1 at any d
        return replace(law, d=d), step_size
    return replace(law, d=d, signal_norm=law.signal_norm * (d / law.d) ** 0.5), step_size * law.d / d


def same_noise_pull(step_size: float, tokens: int) -> float:
    r"""Step size at which T tokens have the pull $a = \beta d/(2nT)$ that two tokens have at `step_size`: $\beta T/2$."""
    return step_size * tokens / 2


@dataclass(frozen=True)
class MeanFieldStep:
    """Two steps with orthogonal noise tokens of equal norm. Tensors (R, 2), second axis the class; `a` is a float."""

    a: float  # pull of a noise token
    b: torch.Tensor  # s_k v_1 . mu_k
    margin1_clean: torch.Tensor
    margin1_noisy: torch.Tensor
    attention_clean: torch.Tensor  # weight on the signal after two steps
    attention_noisy: torch.Tensor
    margin2_clean: torch.Tensor
    margin2_noisy: torch.Tensor
    scores: FreshScores  # law of the fresh scores after two steps, one noise token

    def log10_error(self, class_probability: float = 0.5, *, per_class: bool = False) -> torch.Tensor:
        """Clean error after two steps, (R,) or (R, 2): the exact integral with these scores. Two tokens only."""
        return log10_error_of_scores(self.scores, per_class=per_class, class_probability=class_probability)


def mean_field_step(law: SignalNoiseLaw, step_size: float, clean: torch.Tensor, noisy: torch.Tensor) -> MeanFieldStep:
    r"""Two steps from zero in the limit of orthogonal noise, from the label counts `clean`, `noisy` (R, 2) alone.

    With $K_{kl} = \mu_k\cdot\mu_l$, $s = (1,-1)$, $w = \beta/(2nT)$, $D_k = |C_k| - |N_k|$:

    $$ a = wd, \quad b_k = w \sum_l s_k s_l K_{kl} D_l, \quad
       m = \tfrac1T\left(\pm b_k + (T-1)a\right), \quad \gamma = \pm b_k - a, $$

    and the same bilinear form with the weights of the second step. Leading order in n/d; derived on page 07.
    """
    unit = step_size / (2 * law.n * law.tokens)
    factor = clean.new_tensor(law.signal_factor.tolist())
    gram, sign, others = factor @ factor.mT, clean.new_tensor([1.0, -1.0]), law.tokens - 1
    square = law.d * law.noise_std**2
    a, b = unit * square, unit * sign * ((sign * (clean - noisy)) @ gram)
    margin_c, margin_n = (others * a + b) / law.tokens, (others * a - b) / law.tokens
    g_c, g_n = torch.sigmoid(-margin_c), torch.sigmoid(-margin_n)
    push_c, push_n = g_c * (b - a), -g_n * (b + a)  # g gamma
    boost_c, boost_n = 1 + 2 * g_c, 1 + 2 * g_n
    on_signal, on_noise = 2 * unit * others / law.tokens, 2 * unit / law.tokens
    p_signals = on_signal * (clean * push_c + noisy * push_n)  # coefficients of mu_1, mu_2 in p_2
    v_signals = unit * sign * (clean * boost_c - noisy * boost_n)
    logit, value = p_signals @ gram, sign * (v_signals @ gram)
    gap_c, gap_n = logit + on_noise * square * push_c, logit + on_noise * square * push_n
    s_c, s_n = (torch.exp(gap) / (torch.exp(gap) + others) for gap in (gap_c, gap_n))
    t_c, t_n = a * boost_c, a * boost_n
    # Squares of the parts of v_2 and p_2 that a fresh noise token sees.
    seen = law.noise_std**2 * square * others
    vv = seen * unit**2 * (clean * boost_c**2 + noisy * boost_n**2).sum(-1)
    pp = seen * on_noise**2 * (clean * push_c**2 + noisy * push_n**2).sum(-1)
    vp = -seen * unit * on_noise * (sign * (clean * boost_c * push_c - noisy * boost_n * push_n)).sum(-1)
    if not law.noise_avoids_signals:
        inside = law.noise_std**2 * gram
        vv, pp = vv + ((v_signals @ inside) * v_signals).sum(-1), pp + ((p_signals @ inside) * p_signals).sum(-1)
        vp = vp + ((v_signals @ inside) * p_signals).sum(-1)
    omega = pp.sqrt().clamp_min(torch.finfo(clean.dtype).tiny).unsqueeze(-1)
    along = vp.unsqueeze(-1) / omega
    tau = (vv.unsqueeze(-1) - along**2).clamp_min(0).sqrt()
    two = torch.ones_like(sign)
    return MeanFieldStep(
        a=a, b=b, margin1_clean=margin_c, margin1_noisy=margin_n, attention_clean=s_c, attention_noisy=s_n,
        margin2_clean=s_c * value + (1 - s_c) * t_c, margin2_noisy=-s_n * value + (1 - s_n) * t_n,
        scores=FreshScores(logit, value, omega * two, sign * along, tau * two),
    )  # fmt: skip
