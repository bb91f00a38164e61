"""Claims V1-V8: the exact clean error of a single head with two tokens, and how far the compiled path is from it."""

from functools import partial

from attnbook.certified import hard_heads
from attnbook.certified.certificate import BITS, Certificate, ball, bounds, precision
from attnbook.certified.error_study import LADDER, MEETING, ErrorStudy, log10_of, next_digit, printed
from attnbook.certified.judging import evidence
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, NothingToMeasure

ERROR_CLAIMS = ClaimSet("certified", Source.CERTIFIED)
CLOSE = 1e-11  # distance of the float path from the exact logarithm, away from walls that nearly meet
_SINGLE = tuple(family for family in hard_heads.FAMILIES if family != "tie")
# By claim, what `attnlib certify --full` proves.
TABLES = {"V3": [partial(hard_heads.whole_family, family) for family in _SINGLE]}


@ERROR_CLAIMS.claim("V1", wrong=next_digit(LADDER[-1][1]), box="thm-cert-error", uses="thm-exact-error")
def five_errors(study: ErrorStudy, constant: float) -> Evidence:
    r"""clean errors from one half to less than a number with 16 000 zeros behind its point
    $\log_{10}$ of the error of five heads, whose numbers are on the page, is $-0.301030458$, $-1.968471246$, $-80.89230280$, $-4243.674021$
    and $-16206.52031$, each to all digits shown
    wrong: the last digit of the last number is off by one"""
    with precision(BITS[1]):
        values = [log10_of(found.log_error) for found in study.ladder]
        proved = printed(values[:-1], [text for _, text in LADDER[:-1]])
        last = printed(values[-1:], [LADDER[-1][1]], constant)
        low, high = bounds(values[-1], 14)
    answer = last if proved else proved
    return evidence(Certificate("five decimals, the last one enclosed", answer, low, high, study.ladder[-1].bits))


@ERROR_CLAIMS.claim("V2", wrong=1e-5, box="thm-cert-error")
def float_path_at_this_seed(study: ErrorStudy, constant: float) -> Evidence:
    r"""the float path on steep, wide, deep and mirrored heads, drawn at the page's seed
    for heads of the five families without walls that nearly meet, drawn at the page's seed, the compiled float64 path is at most
    $10^{-11}\max(1,|\log\mathrm{err}|)$ from $\log\mathrm{err}$
    wrong: a bound of $10^{-16}$"""
    heads = [each for family in _SINGLE for each in study.compared[family]]
    return _all_within(heads, CLOSE * constant, f"{len(heads)} heads, bound {CLOSE * constant:.0e}")


@ERROR_CLAIMS.claim("V3", wrong=1e-4, box="thm-cert-error")
def float_path_of_the_table(study: ErrorStudy, constant: float) -> Evidence:
    r"""the float path on the 10 000 heads of the table
    the same for the 10 000 heads of these five families that were drawn with the table's seed (2000 of each): where the full run on record
    was made each distance is at most $3\cdot10^{-12}\max(1,|\log\mathrm{err}|)$; the farthest head of each family is proved again here,
    with the bound $10^{-11}$
    wrong: bounds ten thousand times smaller"""
    table = hard_heads.stored()
    again = hard_heads.compare([hard_heads.Head(*table[family]["where"]) for family in _SINGLE])
    stored = max(table[family]["largest"] for family in _SINGLE) <= hard_heads.WHERE_MADE * constant
    found = _all_within(again, CLOSE * constant, f"{sum(table[family]['heads'] for family in _SINGLE)} heads")
    certificate = Certificate(found.predicted, stored and found.holds, bits=BITS[0])
    return evidence(certificate, *(whole() for whole in TABLES["V3"]))


@ERROR_CLAIMS.claim("V4", wrong=1e8, box="thm-cert-error")
def digits_are_lost(study: ErrorStudy, constant: float) -> Evidence:
    r"""where two walls nearly meet, the float path loses digits
    among the heads drawn at the page's seed whose numerator $e^{a-\omega t}V+ct$ has a least value near zero there is one whose float64
    logarithm is more than $10^{-11}\max(1,|\log\mathrm{err}|)$ away from $\log\mathrm{err}$
    wrong: more than $10^{-3}$ away"""
    farthest = max(each.at_least for each in study.compared["tie"])
    nearest = max(each.distance for each in study.compared["tie"])
    threshold = 1e-11 * constant
    proved = True if farthest > threshold else False if nearest <= threshold else None
    return evidence(Certificate(f"one head of {study.heads} beyond {threshold:.0e}", proved, bits=BITS[0]))


@ERROR_CLAIMS.claim("V5", wrong=0.0, box="prop-cert-backward")
def exact_for_a_neighbour(study: ErrorStudy, constant: float) -> Evidence:
    r"""and what it returns there is exact for a head next to the given one
    for each such head the float64 result is within $10^{-12}\max(1,|\log\mathrm{err}|)$ of $\log\mathrm{err}$, or it is the exact logarithm
    for a head whose c differs by at most $1024\cdot2^{-52}$ of itself
    wrong: c not moved at all"""
    moves = [4096 if move is None else move for move in study.moves]  # None: nothing below 4096 was found
    # No move of c at all is refuted by a head that lies far away; a smaller one than was found is not.
    far = any(each.at_least > hard_heads.FAR for each in study.compared["tie"])
    proved = True if max(moves) <= 1024 * constant else False if far and not constant else None
    text = f"{study.heads} heads, c moved by at most {1024 * constant:.0f} units of 2^-52"
    return evidence(Certificate(text, proved, bits=BITS[0]))


@ERROR_CLAIMS.claim("V6", wrong=next_digit(MEETING[1]), box="thm-cert-error")
def widened(study: ErrorStudy, constant: float) -> Evidence:
    r"""a deviation that the float path widens
    for $a=0$, $V=\omega=1$, $c=2.7182818284$, $\tau=10^{-12}$ the error is $10^{-766.5426069}$, to all digits shown; the float64 path,
    which counts $\tau$ as at least $10^{-9}\sqrt{c^2+\tau^2}$, returns an error above $10^{-6}$
    wrong: the last digit of the exponent is off by one"""
    found, by_float = study.meeting
    with precision(BITS[1]):
        value = log10_of(found.log_error)
        proved = printed([value], [MEETING[1]], constant)
        above = bool(ball(by_float) > -6 * ball(1).const_log10())
        low, high = bounds(value, 13)
    return evidence(
        Certificate("exponent to its last digit; float above 1e-6", proved and above, low, high, found.bits)
    )


@ERROR_CLAIMS.claim("V7", wrong=1 + 1e-6, box="thm-cert-error")
def two_integrators(study: ErrorStudy, constant: float) -> Evidence:
    r"""two integrators enclose the same numbers
    for sixteen heads with errors down to $10^{-4243}$ or less the enclosure by Taylor panels and that by Arb's own integrator overlap, and
    both are narrower than $10^{-9}\max(1,|\log\mathrm{err}|)$
    wrong: one of them multiplied by $1+10^{-6}$"""
    with precision(BITS[0]):
        narrow = all(float(x.rad()) <= 1e-9 * max(1.0, float(x.abs_lower())) for pair in study.twice for x in pair)
        meet = all((constant * one).overlaps(other) for one, other in study.twice)
    if len(study.twice) != 16:
        raise NothingToMeasure(f"needs sixteen heads with V > 0 and errors above 1e-10000; here {len(study.twice)}")
    return evidence(Certificate("16 pairs of balls overlap", narrow and meet, bits=BITS[0]))


@ERROR_CLAIMS.claim("V8", wrong=1e-5, box="thm-cert-error", uses="thm-exact-error")
def trained(study: ErrorStudy, constant: float) -> Evidence:
    r"""the clean errors of trained heads
    at the law of page I.2 ($n=200$, $d=40\,000$, $\rho=30$, $\eta=.05$) the float64 value of $\log_{10}$ of the clean error after two steps
    differs from the exact one for these parameters by at most $10^{-13}$ of itself, for each training set drawn
    wrong: at most $10^{-18}$ of itself"""
    bound = 1e-13 * constant
    text = f"{study.trained} training sets, bound {bound:.0e}"
    inside = all(distance <= bound for distance in study.trained_distances)
    outside = any(distance > bound for distance in study.trained_distances)
    return evidence(Certificate(text, True if inside else False if outside else None, bits=BITS[0]))


def _all_within(heads: list[hard_heads.Compared], bound: float, what: str) -> Evidence:
    """Proved where every upper bound is small enough, refuted where a lower bound is not."""
    inside = all(each.distance <= bound for each in heads)
    outside = any(each.at_least > bound for each in heads)
    return evidence(Certificate(what, True if inside else False if outside else None, bits=BITS[0]))
