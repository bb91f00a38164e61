"""The random numbers of training prompts, by counter: any prompt of any step can be made without the others.

One Philox4x32-10 call (Salmon et al., SC 2011) with the experiment's seed as key and the counter
(prompt, step, stream, 0) gives four words; these are the state of a xoshiro128+ generator (Blackman and Vigna, 2021)
that belongs to this prompt at this step alone. Its outputs, two at a time, make two standard normals each.

This module is the definition, in integers and float64. The compiled trainers produce the same integers, and the same
normals up to float32 rounding.

Two words (w, q) become two normals by Box and Muller's rule, folded into the first quadrant:

    u = ((w mod 2^31) | 1) / 2^31,   r = sqrt(-ln u),   theta = pi a / 4,   a = int32(4 q) / 2^31 in [-1, 1)
    n1 = +- r (cos theta - sin theta),   n2 = +- r (cos theta + sin theta)

where int32(4 q) drops the two top bits of q: bit 31 set makes n1 negative, bit 30 n2. Since
sqrt(2) cos(theta + pi/4) = cos theta - sin theta, this is sqrt(-2 ln u) (cos, sin) of an angle uniform on a quadrant.

The normals of a prompt, in order: beta (d), the query x_q (d), the target's noise (1), one unused; then for every
token its x (d), its label noise (1), and one unused number if d + 1 is odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

A = TypeVar("A", NDArray[np.float64], torch.Tensor)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)


def normals_per_prompt(d: int, length: int) -> int:
    """2d + 2 + 2 `length` ceil((d + 1)/2): the standard normals that one prompt takes from its stream, an even number."""
    return 2 * d + 2 + length * 2 * ((d + 2) // 2)


def split(normals: A, d: int) -> tuple[A, A, A, A, A]:
    """beta (..., d), query (..., d), the target's noise (...), x (..., L, d) and label noise (..., L) of prompts' normals."""
    head, tokens = normals[..., : 2 * d + 2], normals[..., 2 * d + 2 :]
    tokens = tokens.reshape(*tokens.shape[:-1], -1, 2 * ((d + 2) // 2))
    return head[..., :d], head[..., d : 2 * d], head[..., 2 * d], tokens[..., :d], tokens[..., d]


def philox(key: tuple[int, int], counter: Sequence[NDArray[Any] | np.uint64]) -> tuple[np.ndarray, ...]:
    """Philox4x32 with ten rounds: four uint32 words for every counter.

    Args:
        key: low and high word of the 64-bit key.
        counter: four uint32 arrays that broadcast against each other.

    Word order as in Random123: zero key and counter give 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
    """
    c0, c1, c2, c3 = (c.astype(np.uint64) for c in np.broadcast_arrays(*counter))
    for round_ in range(10):
        k0, k1 = (np.uint64((k + round_ * weyl) & 0xFFFFFFFF) for k, weyl in zip(key, _WEYL, strict=True))
        # 32 x 32 -> 64 bits: high and low words of both products are mixed with the key.
        left, right = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        shift = np.uint64(32)
        c0, c1, c2, c3 = (right >> shift) ^ c1 ^ k0, right & _LOW, (left >> shift) ^ c3 ^ k1, left & _LOW
    return tuple(c.astype(np.uint32) for c in (c0, c1, c2, c3))


def xoshiro(state: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The next `count` outputs of xoshiro128+ on the last axis, uint32, for every state (four uint32 arrays of one shape)."""
    s0, s1, s2, s3 = (np.array(s, dtype=np.uint32) for s in state)
    out = np.empty((count, *s0.shape), dtype=np.uint32)  # counted first: every output is written in one piece
    for i in range(count):
        np.add(s0, s3, out=out[i, ...])  # uint32 wraps
        moved = s1 << np.uint32(9)
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= moved
        s3 = (s3 << np.uint32(11)) | (s3 >> np.uint32(21))
    return np.moveaxis(out, 0, -1)


def words(
    seed: int, streams: Sequence[int] | NDArray[np.uint32], first_step: int, steps: int, prompts: int, count: int
) -> np.ndarray:
    """The first `count` random words of every prompt, uint32 (streams, steps, prompts, count).

    Args:
        seed: whole number in [0, 2^64), the generator's key.
        streams: whole numbers in [0, 2^32), one for each entry of the first axis; equal numbers give equal words.
        first_step: absolute number of the first step (updates already made).
        steps: how many steps.
        prompts: prompts of a batch, numbered from 0.
        count: words of each prompt.
    """
    counter = np.ix_(
        np.asarray(streams, dtype=np.uint32), np.arange(first_step, first_step + steps), np.arange(prompts)
    )
    prompt, step, stream = counter[2], counter[1], counter[0]
    return xoshiro(philox((seed & 0xFFFFFFFF, seed >> 32), (prompt, step, stream, np.uint64(0))), count)


def normals_of(pairs: np.ndarray) -> np.ndarray:
    """Standard normals, float64, of random words with an even last axis: words (2i, 2i+1) make normals (2i, 2i+1)."""
    first, second = pairs[..., 0::2], pairs[..., 1::2]
    # u in (0, 1): 31 bits, the lowest set, so that the logarithm is finite.
    uniform = ((first & np.uint32(0x7FFFFFFF)) | np.uint32(1)).astype(np.float64) / 2.0**31
    radius = np.sqrt(-np.log(uniform))
    # theta uniform on (-pi/4, pi/4)
    angle = (second << np.uint32(2)).view(np.int32) / 2.0**31 * (np.pi / 4)
    cosine, sine = np.cos(angle), np.sin(angle)
    out = np.empty_like(pairs, dtype=np.float64)  # in the memory order of the words
    out[..., 0::2] = radius * (cosine - sine) * np.where(second >> np.uint32(31), -1.0, 1.0)
    out[..., 1::2] = radius * (cosine + sine) * np.where((second >> np.uint32(30)) & np.uint32(1), -1.0, 1.0)
    return out


def normals(
    seed: int, streams: Sequence[int] | NDArray[np.uint32], first_step: int, steps: int, prompts: int, count: int
) -> np.ndarray:
    """The first `count` standard normals of every prompt, float64 (streams, steps, prompts, count); arguments of `words`."""
    return normals_of(words(seed, streams, first_step, steps, prompts, count + count % 2))[..., :count]
