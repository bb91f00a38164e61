"""`attnlib/nutshell.py` computes what the package computes, from the same draws, and runs alone: without torch and without attnlib."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attnlib import nutshell
from attnlib.single_head import SignalNoiseLaw, forward, gradient_descent, log10_clean_error, summarise, two_steps

FILE = Path(nutshell.__file__)
# n, d, rho, eta, beta: the page, its row inside the theorem's condition, many flips, a billion dimensions, n = d - 2.
SETTINGS = (
    (200, 40_000, 30.0, 0.05, 0.025),
    (60, 40_000, 3000**0.5, 0.05, 0.0075),
    (50, 5000, 12.0, 0.2, 0.05),
    (30, 10**9, 9000.0, 0.1, 1e-7),
    (20, 22, 3.0, 0.3, 0.5),
)


def apart(own, other) -> float:
    """The largest difference, over the largest number."""
    other = np.asarray(other)
    return float(np.abs(own - other).max() / np.abs(other).max())


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_nutshell_is_the_package_to_twelve_digits(setting) -> None:
    n, d, rho, eta, beta = setting
    sample = SignalNoiseLaw(n, d, rho, eta).draw(seed=3, runs=2)
    closed = two_steps(sample, beta)
    for steps in (1, 2, 20):
        path = gradient_descent(sample, beta, steps)
        v, p = path.v[-1], path.p[-1]
        error = log10_clean_error(v, p, sample)
        output = forward(sample.tokens, v, p).output
        for run in range(2):
            X, truth, y = nutshell.draw(n, d, rho, eta, seed=3, run=run)
            own_v, own_p = nutshell.train(X, y, beta, steps)
            assert np.array_equal(X, sample.tokens[run])
            assert np.array_equal(y, sample.labels[run])
            assert np.array_equal(truth, sample.true_labels[run])
            assert apart(own_v, v[run]) < 1e-12
            if steps == 1:
                scale = np.abs(own_v).max()  # p_1 is zero
                assert own_p == pytest.approx(np.zeros_like(own_p), abs=1e-12 * scale)
                assert p[run].numpy() == pytest.approx(np.zeros_like(own_p), abs=1e-12 * scale)
            else:
                assert apart(own_p, p[run]) < 1e-12
            assert apart(nutshell.head(X, own_v, own_p)[2], output[run]) < 1e-12
            assert nutshell.log10_error(own_v, own_p, rho) == pytest.approx(error[run].item(), rel=1e-12)
            if steps == 2:
                for own, other in zip(nutshell.two_steps(X, y, beta), (closed.v2, closed.p2), strict=True):
                    assert apart(own, other[run]) < 1e-12


def test_the_error_is_exact_on_either_side_of_one_half() -> None:
    """Against fresh samples: a head that is mostly right, its opposite, and one whose scores matter."""
    rng = np.random.default_rng(0)
    for value, score in ((1.0, 0.3), (-1.0, 0.3), (0.4, 2.0)):
        v, p = np.array([value, -value, 0.6, 0.3]), np.array([score, score, 0.5, -0.7])
        X = np.zeros((200_000, 2, 4))
        k = rng.integers(0, 2, len(X))
        X[np.arange(len(X)), 0, k] = 1.0
        X[:, 1, 2:] = rng.standard_normal((len(X), 2))
        counted = np.mean(nutshell.head(X, v, p)[2] * (1 - 2 * k) < 0)
        spread = np.sqrt(counted * (1 - counted) / len(X))
        assert abs(10 ** nutshell.log10_error(v, p, 1.0) - counted) < 4 * spread


def test_alone_it_prints_the_numbers_of_the_package_and_loads_no_torch(tmp_path: Path) -> None:
    shutil.copy(FILE, tmp_path)
    run = "import runpy, sys; runpy.run_path('nutshell.py', run_name='__main__'); print({'torch', 'attnlib'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    *_, loaded = done.stdout.splitlines()
    assert loaded == "set()"
    printed = [float(number) for number in re.findall(r"10\^(-[\d.]+)", done.stdout)]
    fitted = [int(number) for number in re.findall(r"(\d+) of 40 fit", done.stdout)]
    expected, fits = [], []
    for n, d, rho, eta, beta in SETTINGS[:2]:
        for steps in (1, 2):
            summary = summarise(SignalNoiseLaw(n, d, rho, eta), beta, steps=steps, draws=40)
            expected.append(float(summary.log10_clean_error.quantile(0.5)))
            fits.append(int(summary.interpolates.sum()))
    assert fitted == fits
    assert printed == pytest.approx(expected, abs=0.02)  # two decimals: half a unit is a quarter of it


def test_it_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 90
