"""Named results: what goes in comes out, as JSON."""

import json
import math

import numpy as np
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookkit import results
from bookkit.results import RESULTS_TYPE, plain, read_results


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1), (2.5, 2.5), (True, True), ("SS", "SS"), (None, None), (math.nan, None), (math.inf, None),
        (np.float64(1.5), 1.5), (np.arange(3), [0, 1, 2]), (torch.tensor(2.0), 2.0), (torch.tensor([1.0, math.nan]), [1.0, None]),
        ((1, [2.0, "a"]), [1, [2.0, "a"]]),
    ],
)  # fmt: skip
def test_plain_values(value, expected):
    got = plain("x", value)
    assert got == expected
    json.dumps(got, allow_nan=False)


def test_objects_are_refused_by_name():
    with pytest.raises(ValueError, match=r"result table must be .*got dict"):
        plain("table", {})


def test_results_are_found_in_a_notebook_and_later_ones_win(monkeypatch):
    outputs = []
    monkeypatch.setattr(
        results,
        "publish",
        lambda kind, payload, text, table: outputs.append(
            new_output("display_data", data={kind: payload, "text/plain": text})
        ),
    )
    results.record(accuracy=0.1 + 0.2, name="a")
    results.record(name="b <i>", missing=math.nan)
    notebook = new_notebook(cells=[new_code_cell("", outputs=[output]) for output in outputs])
    assert read_results(notebook) == {"accuracy": 0.1 + 0.2, "name": "b <i>", "missing": None}
    assert outputs[0]["data"]["text/plain"] == "accuracy = 0.3\nname = a"
    assert read_results(new_notebook()) == {}
    assert RESULTS_TYPE in outputs[0]["data"]


def test_html_is_escaped(monkeypatch):
    shown = []
    monkeypatch.setattr(results, "publish", lambda *parts: shown.append(parts[3]))
    results.record(x="<script>")
    assert "<script>" not in shown[0]
    assert "&lt;script&gt;" in shown[0]
