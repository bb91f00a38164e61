"""Two small Triton kernels whose machine code is known well enough to test what reads it."""

import triton
import triton.language as tl


@triton.jit
def repeated_sum(x, out, steps, SIZE: tl.constexpr):
    """out = sum over `steps` rows of x: one loop, few registers."""
    lane = tl.arange(0, SIZE)
    total = tl.zeros((SIZE,), tl.float32)
    for i in range(steps):
        total += tl.load(x + i * SIZE + lane)
    tl.store(out + lane, total)


@triton.jit
def nested(x, out, outer, steps, SIZE: tl.constexpr):
    """A loop in a loop; what it adds up is read again after it was written."""
    lane = tl.arange(0, SIZE)
    for _ in range(outer):
        total = tl.load(out + lane)
        for i in range(steps):
            total += tl.sqrt(tl.load(x + i * SIZE + lane))
        tl.store(out + lane, total)


@triton.jit
def many_sums(x, out, steps, SIZE: tl.constexpr, COUNT: tl.constexpr):
    """COUNT vectors that all live through the loop: with few registers they cannot."""
    lane = tl.arange(0, SIZE)
    sums = ()
    for j in tl.static_range(COUNT):
        sums = sums + (tl.load(x + j * SIZE + lane),)  # noqa: RUF005 (Triton knows no star)
    for i in range(steps):
        value = tl.load(out + i * SIZE + lane)
        moved = ()
        for j in tl.static_range(COUNT):
            moved = moved + (sums[j] * value + sums[(j + 1) % COUNT],)  # noqa: RUF005
        sums = moved
    for j in tl.static_range(COUNT):
        tl.store(out + j * SIZE + lane, sums[j])


@triton.jit
def typed(x, out, KIND: tl.constexpr, TWICE: tl.constexpr):
    """One number as KIND, doubled if asked."""
    value = tl.load(x).to(KIND)
    if TWICE:
        value = value + value
    tl.store(out, value)
