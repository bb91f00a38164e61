r"""Lost and kept at finite d: gradient descent with a Gram matrix near the identity, followed in balls, for each x of a cell.

One class with one flipped sample to four clean ones (nu = 1/4), r = 1, start at zero, step size h = beta d / n. For orthogonal noise
a class has five variables $y = (V, t_c, t_n, a, b)$, $a = P - q_c$, $b = P - q_n$, and one step adds $h F(y)$ (`map_rates`). For a Gram
matrix d (1 + E) every sample has a value and a logit of its own. If those of all samples lie within R of y (each variable within R
times its weight), then after a step they lie within

    R stretch + h eps c + rounding     of y + h F(y),

stretch: how a step stretches differences of samples, at most; eps: the largest row sum of |E|; c: the largest step that E multiplies.
Proof: lemma *One step for all samples* in the chapter *In the long run*. Weights and the centre y may be any numbers: they prove.

    python -m attnbook.open_questions.finite_border     proves all cells of `LOST` and `KEPT`; exit 1 at the first that is not proved
"""

from attnbook.certified.boundary_flow import NoStep, above
from attnbook.certified.certificate import _flint, ball, precision
from bookkit.parser import answered

BITS = 64
WEIGHTS = (1.0, 1.0, 1.5, 2.0, 1.5)  # of V, t_c, t_n, a, b
LARGEST_X = 2  # of both classes
STEP = "0.25"  # h
Z = 0.01  # room in the trap that is proved: z and z' of the smaller trap
TURNED = "0.6"  # attention on the signal above which a class counts as kept
# Parts of the range of x: both ends and the width of a cell (in units of 10^-5), the largest eps, the number of steps.
LOST = (
    (100_000, 130_000, 200, "1e-4", 64),
    (130_000, 150_000, 100, "1e-5", 160),
    (150_000, 158_000, 20, "1e-6", 320),
    (158_000, 160_000, 10, "1e-7", 480),
    (160_000, 161_000, 2, "1e-7", 720),
)
KEPT = (
    (165_000, 167_000, 4, "1e-7", 1600),
    (167_000, 170_000, 4, "1e-7", 1000),
    (170_000, 180_000, 10, "1e-7", 500),
    (180_000, 200_000, 10, "1e-6", 300),
)


def _parts(y):
    V, t_c, t_n, a, b = y
    s_c, s_n = 1 / (1 + (-a).exp()), 1 / (1 + (-b).exp())
    g_c, g_n = 1 / (1 + (t_c + s_c * (V - t_c)).exp()), 1 / (1 + (t_n - s_n * (V + t_n)).exp())
    return s_c, s_n, g_c, g_n, s_c * (1 - s_c) * (V - t_c), s_n * (1 - s_n) * (V + t_n)


def map_rates(y, x, nu):
    """F(y): what one step adds, over h."""
    s_c, s_n, g_c, g_n, w_c, w_n = _parts(y)
    pull_c, pull_n = g_c * w_c, nu * g_n * w_n
    return [
        x * (g_c * s_c - nu * g_n * s_n),
        g_c * (1 - s_c),
        g_n * (1 - s_n),
        (1 + x) * pull_c - x * pull_n,
        x * pull_c - (1 / nu + x) * pull_n,
    ]


def slopes(y):
    """Derivatives of g s, of g (1 - s) and of the pull A, by V, by the own value t and by the own logit: of clean, of flipped samples."""
    s_c, s_n, g_c, g_n, w_c, w_n = _parts(y)
    found = []
    for s, g, w, sign in ((s_c, g_c, w_c, -1), (s_n, g_n, w_n, 1)):
        h, k, o = s * (1 - s), g * (1 - g), 1 - s  # the margin has the derivatives s, o, w; flipped: -s, o, -w
        by_g = (sign * k * s, -k * o, sign * k * w)
        by_s, by_w = (0, 0, h), (h, sign * h, (1 - 2 * s) * w)
        signal = [dg * s + g * ds for dg, ds in zip(by_g, by_s, strict=True)]
        value = [dg * o - g * ds for dg, ds in zip(by_g, by_s, strict=True)]
        found.append((signal, value, [dg * w + g * dw for dg, dw in zip(by_g, by_w, strict=True)]))
    return found


def stretch(y, x, nu, h) -> float:
    """An upper bound of the new radius over the old one where the states of all samples lie in the box y: weighted row sums."""
    (signal_c, value_c, pull_c), (signal_n, value_n, pull_n) = slopes(y)
    d_V, d_c, d_n, d_a, d_b = WEIGHTS

    def others(slope, d_t: float, d_logit: float):
        return abs(slope[1]) * d_t + abs(slope[2]) * d_logit

    mean_c, mean_n = others(pull_c, d_c, d_a) * x, others(pull_n, d_n, d_b) * x * nu  # through the common P
    by_V = x * (pull_c[0] - nu * pull_n[0])
    rows = [
        abs(1 + h * x * (signal_c[0] - nu * signal_n[0]))
        + h * x * (others(signal_c, d_c, d_a) + nu * others(signal_n, d_n, d_b)) / d_V,
        abs(1 + h * value_c[1]) + h * (abs(value_c[0]) * d_V + abs(value_c[2]) * d_a) / d_c,
        abs(1 + h * value_n[1]) + h * (abs(value_n[0]) * d_V + abs(value_n[2]) * d_b) / d_n,
        abs(1 + h * pull_c[2])
        + h * (abs(by_V + pull_c[0]) * d_V + abs(pull_c[1]) * d_c + mean_c + mean_n) / d_a,
        abs(1 - h * pull_n[2])
        + h * (abs(by_V - pull_n[0]) * d_V + abs(pull_n[1]) * d_n + mean_c + mean_n) / d_b,
    ]  # fmt: skip
    return max(above(row) for row in rows)


def follow(x, error: str, steps: int):
    """Boxes of the states of all samples, after 0 to `steps` steps; x is the ball of a cell. Inside `precision`. Raises `NoStep`."""
    arb = _flint().arb
    h, eps, nu = ball(STEP), ball(error), arb(1) / 4
    y, radius = [arb(0)] * 5, 0.0
    for t in range(steps + 1):
        box = [value + arb(0, radius * weight) for value, weight in zip(y, WEIGHTS, strict=True)]
        yield box
        pull = above((1 + LARGEST_X + eps) * t * h / 4)  # |A| of any sample of both classes: a quarter of |V| + |t|
        cross = above(h * eps * max(1 / min(WEIGHTS[1:3]), pull / min(WEIGHTS[3:])))
        now = [value + h * rate for value, rate in zip(y, map_rates(y, x, nu), strict=True)]
        rest = max(above(arb(value.rad()) / weight) for value, weight in zip(now, WEIGHTS, strict=True))
        radius = above(arb(radius) * stretch(box, x, nu, h) + cross + rest)
        y = [arb(value.mid()) for value in now]


def cell(low: int, high: int):
    """The ball of all x between two whole numbers of units of 10^-5."""
    return (ball(low) + ball(high) + _flint().arb(0, 1) * (ball(high) - ball(low))) / 200_000


def lost(low: int, high: int, error: str, steps: int) -> bool:
    """Whether each class with x in the cell meets the entry conditions of the smaller trap after `steps` steps, with z = z' = `Z`."""
    with precision(BITS):
        x, h, nu, eps = cell(low, high), ball(STEP), ball("0.25"), ball(error)
        try:
            *_, (V, t_c, t_n, a, b) = follow(x, error, steps)
        except NoStep:
            return False
        room = 3 * ball(Z) + h * x / (1 + x) - (1 - eps).log()
        return all([t_c - V > Z, V + t_n > Z, -a - x.log() > room, -b - (nu * x).log() > room])


def kept(low: int, high: int, error: str, steps: int) -> bool:
    """Whether all clean samples of each class with x in the cell have more attention than `TURNED` after `steps` steps."""
    with precision(BITS):
        try:
            *_, (_, _, _, a, _) = follow(cell(low, high), error, steps)
        except NoStep:
            return False
        return bool(1 / (1 + (-a).exp()) > ball(TURNED))


def main() -> int:
    """Prove every cell."""
    for name, proves, parts in (("lost", lost, LOST), ("kept", kept, KEPT)):
        for first, last, width, error, steps in parts:
            good = all(proves(low, low + width, error, steps) for low in range(first, last, width))
            print(f"{name}: x from {first / 1e5} to {last / 1e5}: {'proved' if good else 'not proved'}", flush=True)
            if not good:
                return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(answered("finite_border", main))
