"""The explorer of two steps, driven as a reader does: what it shows is what attnlib computes."""

import json
import math
import re

import pytest
import torch

from attnbook.explorers.__main__ import FOLDER
from attnbook.single_head.mean_field import mean_field, mean_field_log10_error
from attnlib.single_head.law import SignalNoiseLaw
from tests.browser.exploring import Explorer, explored

pytestmark = pytest.mark.browser

POINT_AND_AXIS = """() => {
  const plot = document.querySelector(".explorer-plot"), box = plot.querySelector(".explorer-stage canvas").getBoundingClientRect();
  const point = plot.querySelector(".explorer-marker .dot").getBoundingClientRect();
  return [(point.left + point.right) / 2, box.left, box.right];
}"""
KEYS = ("n", "d", "signal_norm", "label_noise", "step", "first_class_share")


def _compare(explorer: Explorer, k: int = 0) -> dict:
    """All numbers shown against attnlib at the settings that the controls show."""
    s = {key: explorer.setting(key) for key in KEYS}
    n, d, share, eta = int(s["n"]), int(s["d"]), s["first_class_share"], s["label_noise"]
    noisy = torch.tensor([[share * eta * n, (1 - share) * eta * n]], dtype=torch.float64)
    clean, beta = n / 2 - noisy, s["step"] * n / d
    law = SignalNoiseLaw(n, d, s["signal_norm"])
    field = mean_field(law, beta, clean, noisy)
    kinds = ("clean", "noisy") if eta else ("clean",)
    names = [f"{name}_{kind}" for name in ("margin1", "margin2", "attention") for kind in kinds]
    unit = beta / (4 * n)
    expected = {name: getattr(field, name)[0, k].item() for name in (*names, "b")} | {
        "a": field.a,
        "snr": s["signal_norm"] / math.sqrt(d),
        "n_snr2": n * s["signal_norm"] ** 2 / d,
        "kappa": field.b.mean().item() / field.a,
        "step_size": beta,
        "log10_error2": mean_field_log10_error(law, beta, clean, noisy).item(),
        "lambda1": (-1) ** k * field.b[0, k].item() / (unit * s["signal_norm"] ** 2),
        "lambda2": (-1) ** k * field.v_signal[0, k].item() / (unit * s["signal_norm"] ** 2),
        "p_signal": field.p_signal[0, k].item() / (unit * s["signal_norm"] ** 2),
        **{f"theta2_{kind}": getattr(field, f"v_noise_{kind}")[0, k].item() / (unit * d) for kind in kinds},
        **{f"p_noise_{kind}": getattr(field, f"p_noise_{kind}")[0, k].item() / (unit * d) for kind in kinds},
    }
    shown = explorer.values()
    assert {key: shown[key] for key in expected} == pytest.approx(expected, rel=1e-6, abs=1e-12)
    return s


def test_every_way_of_moving_the_point_ends_at_attnlibs_numbers(browser, address):
    with explored(browser, address, "two_steps") as explorer:
        assert explorer.state == "live"
        start = _compare(explorer)
        assert start == {
            "n": 200,
            "d": 40_000,
            "signal_norm": 30,
            "label_noise": 0.05,
            "step": 5,
            "first_class_share": 0.5,
        }
        assert "benign" in explorer.sentence()
        assert "theorem is silent" in explorer.sentence()

        explorer.press_slider("step", "ArrowLeft", times=40)  # keyboard
        assert _compare(explorer)["step"] < 2
        assert "not fitted" in explorer.sentence()
        explorer.drag_slider("label_noise", 0)  # mouse
        assert _compare(explorer)["label_noise"] == 0
        assert explorer.text("margin2_noisy") == "no such sample"
        assert "no flipped labels" in explorer.sentence()

        explorer.reset()
        explorer.drag_marker("map", "point", 90, -60)  # the sliders follow the point
        moved = _compare(explorer)
        assert moved["signal_norm"] > 40
        assert moved["step"] > 8
        assert "harmful" in explorer.sentence()
        explorer.press_marker("map", "point", "ArrowDown", times=3)
        assert _compare(explorer)["step"] < moved["step"]
        explorer.click_plot("map", 0.4, 0.5)  # a tap: the middle of both log axes
        tapped = _compare(explorer)
        assert tapped["signal_norm"] / 200 == pytest.approx(0.006 * 250**0.4, rel=0.03)
        assert tapped["step"] == pytest.approx(math.sqrt(0.1 * 60), rel=0.03)
        explorer.choose("axis", "n_snr2")
        explorer.drag_marker("map", "point", 30, 0)
        assert _compare(explorer)["signal_norm"] > tapped["signal_norm"]

        explorer.type("first_class_share", "0.9")  # the classes part
        first = explorer.value("margin2_clean")
        _compare(explorer, 0)
        explorer.choose("shown_class", "2")
        _compare(explorer, 1)
        assert abs(explorer.value("margin2_clean") - first) > 0.01
        explorer.press_slider("d", "End")
        explorer.press_slider("n", "Home")
        assert _compare(explorer, 1)["d"] == 1e8
        explorer.reset()
        explorer.type("d", "1e8")  # the axis grows until the point is inside
        centre, left, right = explorer.page.evaluate(POINT_AND_AXIS)
        assert left + 5 < centre < right - 5
        assert "harmful" in explorer.sentence()
        explorer.reset()
        explorer.type("label_noise", "0")
        assert _compare(explorer)["label_noise"] == 0
        assert re.search(r"1 in [\d.]+×10[⁰-⁹¹²³]{3} fresh points", explorer.sentence()), explorer.sentence()
        explorer.page.get_by_role("link", name="take the flips away").click()  # an experiment of the page
        assert _compare(explorer, 0) == start | {"label_noise": 0, "step": 30}
        assert explorer.visit.errors == explorer.visit.outside == []


def test_cells_training_and_command(browser, address):
    """Measured cells only where there are some; random sets when the reader rests; the command of the point."""
    stored = json.loads(re.sub(r"^.*?\] = |;\n$", "", (FOLDER / "two_steps.js").read_text(encoding="utf-8")))
    pixels = "root => root.querySelector('canvas').toDataURL()"
    with explored(browser, address, "two_steps") as explorer:
        page = explorer.page
        page.wait_for_function("() => /Ten random sets/.test(document.querySelector('.explorer-verdict').textContent)")
        fitting, median = explorer.value("trained_fit"), explorer.value("trained_error")
        assert 8 <= fitting <= 10
        assert -200 < median < -20
        assert explorer.value("trained_benign") == 10
        assert len(explorer.plot("margins").locator('g[data-key="set-clean"] circle').all()) == 120
        fine = explorer.root.evaluate(pixels)
        explorer.choose("cells", "measured")
        assert explorer.root.evaluate(pixels) != fine
        assert "the majority of 10 real training sets" in explorer.sentence()
        unsure = sum(row.count("1") for row in stored["maps"][0]["uncertain"])
        assert explorer.plot("map").locator('g[data-key="unsure"] circle').count() == unsure
        explorer.type("n", "150")
        assert "(200, 2000, 0.05)" in explorer.sentence()
        assert explorer.plot("map").locator('g[data-key="unsure"] circle').count() == 0
        assert (
            "-p n 150 -p d 40000 -p signal_norm 30 -p label_noise 0.05 -p step_size 0.01875"
            in explorer.root.inner_text()
        )
        assert explorer.visit.errors == []
