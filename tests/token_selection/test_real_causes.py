"""What decides the cost of wrong labels: changes seed by seed, tables found by name, claims that could fail."""

import json
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from attnbook.token_selection.real_data.causes import FEWER, MIXED, WHOLE, Causes, causes
from attnbook.token_selection.real_data.causes_claims import CLAIMS
from attnbook.token_selection.real_data.sets_figures import draw_causes
from attnbook.token_selection.real_data.sets_study import sets_study
from attnbook.token_selection.real_data.tables import TABLES


def world(**lost):
    """A study whose F by seed is `lost` of "set, tokens, confidence", with underscores for spaces in the names of sets."""
    found = {}
    for name, values in lost.items():
        data, tokens, confidence = name.split("__")
        key = data, {"whole": WHOLE, "mixed": MIXED}[tokens], float(confidence)
        found[key] = SimpleNamespace(lost=lambda values=values: np.array(values))
    return Causes(found)


def test_a_change_pairs_seeds_and_leaves_out_the_set_on_which_it_was_found():
    study = world(
        mnist__whole__1=[0.1, 0.2, 0.9], mnist__whole__10=[0.4, 0.6],
        trec__whole__1=[0.0, 0.0, 0.0], trec__whole__10=[0.2, 0.0, 9.0],
        cifar10__whole__1=[0.0] * 3, cifar10__whole__10=[5.0] * 3,
    )  # fmt: skip
    change = study.change((WHOLE, 1.0), (WHOLE, 10.0), ("mnist", "trec"))
    assert change.tolist() == pytest.approx([(0.3 + 0.2) / 2, (0.4 + 0.0) / 2])
    assert study.change((WHOLE, 1.0), (WHOLE, 10.0)).tolist() == pytest.approx(change.tolist())
    study = world(mnist__whole__1=[0.0], mnist__whole__10=[1.0], trec__whole__1=[0.0])
    assert study.change((WHOLE, 1.0), (WHOLE, 10.0)).tolist() == [1.0]  # of the sets that have both
    with pytest.raises(KeyError):
        study.change((WHOLE, 1.0), (FEWER, 1.0), ("mnist",))


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda claim: claim.id)
def test_a_claim_is_told_from_its_control_and_from_no_change(claim):
    def judged(change):
        spread, names = np.linspace(-0.05, 0.05, 5), ("mnist", "pneumonia_mnist", "breast_mnist")
        signs = dict.fromkeys(names, 1) | {"cifar10": -1}
        raised = {
            f"{data}__{end}": signs[data] * change + spread for data in signs for end in ("whole__10", "mixed__1")
        }
        return claim.check(world(**{f"{data}__whole__1": np.zeros(5) for data in signs}, **raised))

    assert judged(0.3).evidence.holds
    assert judged(0.3).has_power
    assert not judged(0.12).evidence.holds  # the interval begins below 0.1
    assert not judged(-0.3).evidence.holds


def test_tables_are_found_by_what_became_of_their_tokens(tmp_path):
    document = json.loads((TABLES / "cifar10_equal_confidence.json").read_text(encoding="utf-8"))
    names = (
        "cifar10_lite0_confidence_3",
        "cifar10_lite0_20_channels_confidence_1",
        "cifar10_lite0_noise_confidence_10",
    )
    for name in names:
        (tmp_path / f"{name}.json").write_text(json.dumps(document | {"name": name}))
    study = causes(tmp_path)
    assert set(study.networks) == {("cifar10", WHOLE, 3), ("cifar10", FEWER, 1), ("cifar10", MIXED, 10)}
    one = study.networks["cifar10", WHOLE, 3]
    cells = [cell for cell in document["cells"] if cell["n"] == 200]
    lost = [
        sum(cell["test_accuracy"][0][-1] - row[-1] for row in cell["test_accuracy"][1:])
        / (0.7 * (10 * cell["test_accuracy"][0][-1] - 1) / 9)
        for cell in cells
    ]
    assert one.lost().tolist() == pytest.approx(lost)
    assert one.above_chance().value == pytest.approx(np.mean([(10 * cell["head_only"] - 1) / 9 for cell in cells]))


def test_the_figure_shows_every_network_once_a_side():
    old, varied = sets_study(), causes()
    figure, (left, right) = plt.subplots(1, 2)
    draw_causes(left, right, old, varied)
    held = [one for (_, _, confidence), one in varied.networks.items() if confidence == 1]
    assert len(left.containers) == len(old.networks) + len(held)
    assert len(right.containers) == 2 * len(old.networks) + len(varied.networks)
    shown = [float(c.lines[0].get_ydata()[0]) for c in left.containers[len(old.networks) :]]
    assert shown == pytest.approx([one.lost().mean() for one in held])
    assert len(right.lines) == 3 * len(right.containers) + len({key[:2] for key in varied.networks}) + 2
    plt.close(figure)


def test_the_stored_networks_fit_their_wrong_labels_and_judge_the_claims():
    varied = causes()
    assert {key[0] for key in varied.networks} == {"cifar10", "mnist", "pneumonia_mnist", "breast_mnist"}
    for key, one in varied.networks.items():
        assert one.fit().mean() > 0.9, key
    for claim in CLAIMS.values():
        assert claim.check(varied).as_expected, claim.id
        assert claim.check(varied).has_power, claim.id
