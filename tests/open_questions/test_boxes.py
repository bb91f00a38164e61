"""Claims of Part IV and of the phase diagram against the boxes of the theory chapters that they name."""

import importlib
import re
from pathlib import Path

import pytest

from bookkit.claims import ClaimSet, Source

BOOK = Path(__file__).parents[2] / "book"
PAGES = ("many_heads.claims", "optimisers.claims", "attention_maps.claims", "attention_maps.claims_thresholds", "noise_laws.claims",
         "noise_laws.claims_long", "more_classes.claims", "second_layer.claims", "random_starts.claims", "margin_and_descent.claims",
         "out_of_the_trap.claims")  # fmt: skip
FENCE = re.compile(r"^:::\{prf:(\w+)\}.*\n(?::label: (\S+)\n)?", re.MULTILINE)


def claims(module: str) -> ClaimSet:
    (found,) = {id(v): v for v in vars(importlib.import_module(module)).values() if isinstance(v, ClaimSet)}.values()
    return found


PART = {id: claim for page in PAGES for id, claim in claims(f"attnbook.open_questions.{page}").items()}
PHASE = claims("attnbook.single_head.phase_diagram.claims")


def boxes(text: str) -> dict[str, bool]:
    """Label of every box -> whether it carries its own argument: a proof comes next, or it is a remark or a definition."""
    found = [(m[1], m[2]) for m in FENCE.finditer(text)]
    following = [*(kind for kind, _ in found[1:]), ""]
    return {
        label: kind in ("remark", "definition") or then == "proof"
        for (kind, label), then in zip(found, following, strict=True)
        if label
    }


KNOWN = {label: argued for path in BOOK.glob("*_theory.md") for label, argued in boxes(path.read_text("utf-8")).items()}


@pytest.mark.parametrize("claim", [*PART.values(), *PHASE.values()], ids=lambda claim: claim.id)
def test_named_boxes_exist_and_derived_claims_have_one_with_a_proof(claim):
    assert [label for label in claim.box if label not in KNOWN] == []
    if claim.source is Source.DERIVED:
        assert claim.box
        assert [label for label in claim.box if not KNOWN[label]] == []


def test_every_box_of_part_four_is_checked_by_a_claim():
    own = boxes((BOOK / "open_questions_theory.md").read_text("utf-8"))
    named = {label for claim in PART.values() for label in claim.box}
    assert set(own) - named == {"def-open-heads"}  # a definition says nothing that could fail
