"""The random numbers of training prompts: published words, a second implementation in plain integers, the law."""

import math

import numpy as np
import pytest
from scipy import stats

from attnlib.kernels import prompt_stream

MASK = 2**32 - 1


def plain_philox(key: list[int], counter: list[int]) -> list[int]:
    key, counter = list(key), list(counter)
    for _ in range(10):
        one, two = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [two >> 32 ^ counter[1] ^ key[0], two & MASK, one >> 32 ^ counter[3] ^ key[1], one & MASK]
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return counter


def plain_xoshiro(state: list[int], count: int) -> list[int]:
    """The authors' C code, line by line."""
    s, out = list(state), []
    for _ in range(count):
        out.append((s[0] + s[3]) & MASK)
        t = (s[1] << 9) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = ((s[3] << 11) | (s[3] >> 21)) & MASK
    return out


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0, 0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((MASK, MASK), (MASK,) * 4, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_words(key, counter, expected) -> None:
    found = prompt_stream.philox(key, [np.uint32(c) for c in counter])
    assert " ".join(f"{int(word):08x}" for word in found) == expected


def test_words_follow_from_seed_step_stream_and_prompt() -> None:
    seed, streams, first = 5 + 7 * 2**32, [3, 2**32 - 1], 11
    found = prompt_stream.words(seed, streams, first, 2, 3, 9)
    assert found.dtype == np.uint32
    for s, i, prompt in np.ndindex(2, 2, 3):
        state = plain_philox([5, 7], [prompt, first + i, streams[s], 0])
        assert found[s, i, prompt].tolist() == plain_xoshiro(state, 9)


def test_a_pair_of_normals_has_the_radius_and_the_angle_of_its_words() -> None:
    words = prompt_stream.words(8, [0, 1], 0, 3, 5, 40).astype(object)
    found = prompt_stream.normals(8, [0, 1], 0, 3, 5, 40)
    first, second = found[..., 0::2], found[..., 1::2]
    uniform = ((words[..., 0::2] % 2**31) | 1).astype(float) / 2**31
    np.testing.assert_allclose(first**2 + second**2, -2 * np.log(uniform), rtol=1e-13, atol=1e-15)
    turned = (words[..., 1::2] % 2**30).astype(float) / 2**29  # 30 bits, two's complement of a + ...
    turned = np.where(turned >= 1, turned - 2, turned)
    np.testing.assert_allclose(np.arctan2(abs(second), abs(first)), math.pi / 4 * (1 + turned), rtol=1e-12, atol=1e-12)
    signs = (words[..., 1::2] // 2**30).astype(int)
    assert ((first < 0) == (signs >= 2)).all()
    assert ((second < 0) == (signs % 2 == 1)).all()


def test_normals_are_standard_and_independent() -> None:
    draws = prompt_stream.normals(21, [0, 1, 2, 3], 100, 20, 64, 252)
    flat = draws.ravel()
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs((flat**power).mean() - mean) < 4 * math.sqrt(variance / flat.size), power
    assert stats.kstest(flat, "norm").pvalue > 1e-3
    neighbours = {
        "prompt": (draws[:, :, 1:], draws[:, :, :-1]),
        "step": (draws[:, 1:], draws[:, :-1]),
        "stream": (draws[1:], draws[:-1]),
        "pair": (draws[..., ::2], draws[..., 1::2]),
        "order": (draws[..., 1:], draws[..., :-1]),
    }
    for name, (one, other) in neighbours.items():
        assert abs((one * other).mean()) < 4 / math.sqrt(one.size), name
        assert abs(((one**2 - 1) * (other**2 - 1)).mean()) < 4 * 2 / math.sqrt(one.size), name


@pytest.mark.parametrize(("d", "length"), [(1, 1), (2, 3), (5, 40), (8, 4)])
def test_the_parts_of_a_prompt_use_every_normal_once_in_their_order(d: int, length: int) -> None:
    count = prompt_stream.normals_per_prompt(d, length)
    assert count == 2 * d + 2 + length * (d + 1 + (d + 1) % 2)
    beta, query, target_noise, x, label_noise = prompt_stream.split(np.arange(count), d)
    assert [*beta, *query, target_noise] == list(range(2 * d + 1))
    tokens = np.column_stack([x, label_noise])
    assert tokens.shape == (length, d + 1)
    assert tokens[0, 0] == 2 * d + 2
    assert (np.diff(tokens, axis=1) == 1).all()
    assert (np.diff(tokens[:, 0]) == d + 1 + (d + 1) % 2).all()
