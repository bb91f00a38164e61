"""The random numbers of `prompt_stream` in a GPU program: 128 prompts in the lanes of vectors, integers bit for bit."""

import triton
import triton.language as tl

from attnlib.kernels._polynomials import COS, LOG, SIN

__all__ = ["LANES", "draw", "fill", "next_word", "philox"]

LANES = tl.constexpr(128)
_LOG = tl.constexpr(LOG)
_COS = tl.constexpr(COS)
_SIN = tl.constexpr(SIN)
_LN2 = tl.constexpr(0.6931471805599453 * 2.0**-23)
_SCALE = tl.constexpr(2.0**-31)


@triton.jit
def philox(key_low, key_high, prompt, step, stream):
    """Philox4x32-10 of the counter (prompt, step, stream, 0): the state of every prompt's generator."""
    zero = prompt & 0
    c0, c1, c2, c3 = prompt, zero + step, zero + stream, zero
    for _ in range(10):
        left, right = c0, c2
        c0 = tl.umulhi(right, zero + 0xCD9E8D57) ^ c1 ^ key_low
        c1 = right * 0xCD9E8D57
        c2 = tl.umulhi(left, zero + 0xD2511F53) ^ c3 ^ key_high
        c3 = left * 0xD2511F53
        key_low += 0x9E3779B9
        key_high += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def next_word(state):
    """xoshiro128+: the output and the next state."""
    s0, s1, s2, s3 = state
    word, moved = s0 + s3, s1 << 9
    s2 = s2 ^ s0
    s3 = s3 ^ s1
    s1 = s1 ^ s2
    s0 = s0 ^ s3
    return word, (s0, s1, s2 ^ moved, (s3 << 11) | (s3 >> 21))


@triton.jit
def _polynomial(x, COEFFICIENTS: tl.constexpr, DEGREE: tl.constexpr):
    value = tl.full(x.shape, COEFFICIENTS[DEGREE], tl.float32)
    for i in tl.static_range(DEGREE):
        value = tl.fma(value, x, tl.full(x.shape, COEFFICIENTS[DEGREE - 1 - i], tl.float32))
    return value


@triton.jit
def _pair(word, angle_word):
    """Two normals of two words (see prompt_stream): u = (1 + g) 2^-k with 1 + g between sqrt(1/2) and sqrt(2)."""
    number = ((word & 0x7FFFFFFF) | 1).to(tl.int32, bitcast=True).to(tl.float32).to(tl.uint32, bitcast=True)
    power = (number - 0x4EB504F3) & 0xFF800000  # -k 2^23: 31 exponents and the bits of sqrt(1/2) less
    rest = (number - power).to(tl.float32, bitcast=True) * _SCALE - 1.0  # both exact
    logarithm = power.to(tl.int32, bitcast=True).to(tl.float32) * -_LN2
    # r = sqrt(-ln u) with ln u = -k ln 2 + ln(1 + g), ln(1 + g) = -g P(g)
    radius = tl.sqrt(tl.fma(rest, _polynomial(rest, _LOG, 7), logarithm))
    # theta = pi a/4; cos theta from a^2, sin theta = a S(a^2).
    angle = (angle_word << 2).to(tl.int32, bitcast=True).to(tl.float32) * _SCALE
    even = angle * angle
    middle, half = radius * _polynomial(even, _COS, 3), radius * angle
    sine = _polynomial(even, _SIN, 3)
    # n1 = r (cos - sin), n2 = r (cos + sin); the two top bits of the word are their signs.
    first = tl.fma(-half, sine, middle).to(tl.uint32, bitcast=True) ^ (angle_word & 0x80000000)
    second = tl.fma(half, sine, middle).to(tl.uint32, bitcast=True) ^ ((angle_word << 1) & 0x80000000)
    return first.to(tl.float32, bitcast=True), second.to(tl.float32, bitcast=True)


@triton.jit
def draw(state, PAIRS: tl.constexpr):
    """(2 PAIRS normals, next state)."""
    found = ()
    for _ in tl.static_range(PAIRS):
        word, state = next_word(state)
        angle_word, state = next_word(state)
        first, second = _pair(word, angle_word)
        found = found + (first, second)  # noqa: RUF005 (the compiler refuses a starred tuple)
    return found, state


@triton.jit(do_not_specialize=["first_step", "steps", "prompts", "pairs"])
def fill(words, normals, keys, streams, first_step, steps, prompts, pairs):
    """The first 2 `pairs` words of every prompt and the normals they make, (streams, steps, prompts, 2 pairs) each.

    One program a stream, a step and a block of prompts: a grid of (streams x steps, blocks).
    """
    row = tl.program_id(0).to(tl.int64)
    step = first_step + row % steps
    prompt = tl.program_id(1) * LANES + tl.arange(0, LANES)
    inside = prompt < prompts
    keys_low, keys_high = tl.load(keys).to(tl.uint32, bitcast=True), tl.load(keys + 1).to(tl.uint32, bitcast=True)
    stream = tl.load(streams + row // steps).to(tl.uint32, bitcast=True)
    state = philox(keys_low, keys_high, prompt.to(tl.uint32), step.to(tl.uint32), stream)
    at = (row * prompts + prompt) * 2 * pairs
    for i in range(pairs):
        word, state = next_word(state)
        angle_word, state = next_word(state)
        first, second = _pair(word, angle_word)
        tl.store(words + at + 2 * i, word.to(tl.int32, bitcast=True), mask=inside)
        tl.store(words + at + 2 * i + 1, angle_word.to(tl.int32, bitcast=True), mask=inside)
        tl.store(normals + at + 2 * i, first, mask=inside)
        tl.store(normals + at + 2 * i + 1, second, mask=inside)
