"""The map of a book: boxes read off chapters, links read off judges, what falls with what, and what stops a build."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bookkit import book, cli
from bookkit.map.boxes import Box, read_boxes
from bookkit.map.graph import Map, read_map
from bookkit.map.links import Links, links_of
from bookkit.pages.catalogue import UserError
from bookkit.sphinx.book_map import Row
from tests.test_sphinx_extension import record, store
from tests.tiny_book import REPOSITORY, make_book, page_text, write

THEORY = r"""# Theory

:::{prf:definition} A die · paper
:label: def-die

Six faces.
:::

:::{prf:lemma} C1, one throw · derived
:label: lem-throw

$$
E = 3.5
$$ (eq-mean)
:::

:::{prf:proof}
Add six numbers.
:::

:::{prf:theorem} Many throws · derived, leading order
:label: thm-many

The mean of $n$ throws.
:::

:::{prf:proof}
By {eq}`eq-mean` and {eq}`eq-outside`.
:::

:::{prf:proof}
Or by {prf:ref}`the die <def-die>`.
:::

$$
x = 1
$$ (eq-outside)

:::{prf:corollary} Cheating · derived
:label: cor-cheat

% not checked: nobody cheats here

It shows.
:::

:::{prf:proof}
C1 and {prf:ref}`thm-many`. The constant (A9) is no box.
:::
"""
JUDGES = """
@CLAIMS.claim("C1", box="lem-throw")
def one(study, constant): ...

@CLAIMS.claim("C2", box="thm-many", uses="C1 def-die")
def many(study, constant): ...

made = maker("C3", uses="C2")

@CLAIMS.claim("C4", source=Source.MEASURED)
def seen(study, constant): ...
"""
RECORDS = [
    record(claim, source=source, function=f"attnbook.throws.claims.{name}")
    for claim, source, name in (
        ("C1", "derived", "one"),
        ("C2", "derived", "many"),
        ("C3", "measured", "seen"),
        ("C4", "measured", "seen"),
    )
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prose = {
        "preface": "# Preface\n\nWe check {claim}`C2`.\n",
        "single_head_theory": THEORY,
        "ledger": "# Ledger\n\n```{ledger}\n```\n",
        "map": "# Map\n\n```{book-map} single_head\n```\n",
    }
    made = make_book(tmp_path, {"single_head/01_a": page_text("show()")}, prose)
    write(made / "book" / "attnbook" / "throws" / "claims.py", JUDGES)
    store(made, "single_head/01_a", RECORDS)
    monkeypatch.chdir(made)
    return made


def test_boxes_know_their_tag_proof_and_what_they_use(root: Path) -> None:
    die, throw, many, cheat = read_boxes(root)
    assert die == Box("def-die", "definition", "A die", "paper", "book/single_head_theory", False, (), "")
    assert throw == Box("lem-throw", "lemma", "C1, one throw", "derived", "book/single_head_theory", True, (), "")
    assert (many.tag, many.source, many.uses) == ("derived, leading order", "derived", ("lem-throw", "def-die"))
    assert (cheat.uses, cheat.unchecked) == (("lem-throw", "thm-many"), "nobody cheats here")


def test_links_are_read_off_the_judges(root: Path) -> None:
    found = {each["id"]: links_of(each, root) for each in RECORDS}
    assert found == {
        "C1": Links(("lem-throw",)),
        "C2": Links(("thm-many",), ("C1", "def-die")),
        "C3": Links((), ("C2",)),  # not in a decorator
        "C4": Links(),
    }
    assert links_of(record("C9", function="somewhere.else"), root) == Links()
    write(root / "book" / "attnbook" / "throws" / "claims.py", JUDGES.replace('"lem-throw"', '("lem-throw",)'))
    with pytest.raises(UserError, match=r"claims\.py: box and uses of claim C1 must be names between spaces, written"):
        links_of(RECORDS[0], root)


def test_what_falls_with_a_claim_is_all_that_rests_on_it(root: Path, capsys: pytest.CaptureFixture) -> None:
    known = read_map(root)
    assert known.problems() == []
    # C1 checks the lemma, which the theorem uses; C2 uses C1 and checks the theorem; the corollary uses both boxes.
    assert known.falls_with("C1") == ["lem-throw", "C2", "thm-many", "cor-cheat", "C3"]
    assert known.falls_with("thm-many") == ["cor-cheat"]
    assert known.falls_with("C4") == []
    with pytest.raises(UserError, match="no claim and no box called 'C7'"):
        known.falls_with("C7")
    assert cli.main(["claims", "--uses", "c2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "C2  holds, single_head/01_a: Two steps suffice",
        "",
        "    thm-many  theorem in book/single_head_theory: Many throws",
        "    C3  holds, single_head/01_a: Two steps suffice",
        "    cor-cheat  corollary in book/single_head_theory: Cheating",
        "",
        "2 boxes and 1 claim rest on it",
    ]
    assert cli.main(["claims"]) != 0
    assert "claims needs an executed notebook" in capsys.readouterr().err


def box(label: str, **changes: object) -> Callable[[Map], Map]:
    """A map in which a box is another."""
    return lambda known: replace(known, boxes={**known.boxes, label: replace(known.boxes[label], **changes)})


def links(claim: str, box: str = "", uses: str = "", source: str = "") -> Callable[[Map], Map]:
    """A map in which a claim has other links, or another source."""

    def changed(known: Map) -> Map:
        record = {**known.claims[claim], **({"source": source} if source else {})}
        made = Links(tuple(box.split()), tuple(uses.split()))
        return replace(known, claims={**known.claims, claim: record}, links={**known.links, claim: made})

    return changed


WHERE, PAGE = "(book/single_head_theory)", "(notebooks/single_head/01_a)"
CIRCLE = "these use each other in a circle: "
NO_PROOF = f"the box thm-many {WHERE} is tagged 'derived, leading order' and no proof follows it"
ALONE = f"no claim checks the box thm-many {WHERE}: "


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            links("C1", "lem-throws"),
            [
                "claim C1 checks the box 'lem-throws', which no chapter has",
                f"no claim checks the box lem-throw {WHERE}: ",
            ],
        ),
        (links("C3", uses="C8"), ["claim C3 uses 'C8', which is neither a claim nor a box"]),
        (box("thm-many", uses=("thm-few",)), [f"the proof of thm-many {WHERE} cites 'thm-few', which no chapter has"]),
        (links("C1", "lem-throw", "C3"), [CIRCLE]),
        (box("lem-throw", uses=("cor-cheat",)), [CIRCLE]),
        (box("cor-cheat", unchecked=""), [f"no claim checks the box cor-cheat {WHERE}: "]),
        (box("thm-many", unchecked="x"), [f"the box thm-many {WHERE} says that no claim checks it, and one does"]),
        (links("C2", uses="C1"), [ALONE, f"claim C2 {PAGE} is derived and names no box"]),
        (box("thm-many", proved=False), [NO_PROOF]),
        # A remark needs a proof only where a derived claim leans on it.
        (box("thm-many", proved=False, kind="remark"), [NO_PROOF]),
        (box("cor-cheat", proved=False, kind="remark"), []),
        (links("C1", "lem-throw def-die"), []),
        (box("lem-throw", tag="paper"), [f"claim C1 {PAGE} is derived, and the boxes that it checks are not"]),
        # What is proved with a computation is proved: it needs its proof on paper, and carries derived claims.
        (box("lem-throw", tag="certified"), []),
        (
            box("lem-throw", tag="certified", proved=False),
            [f"the box lem-throw {WHERE} is tagged 'certified' and no proof follows it"],
        ),
        (links("C2", uses="C1", source="certified"), [ALONE, f"claim C2 {PAGE} is certified and names no box"]),
    ],
)
def test_every_fault_of_a_map_has_its_words(root: Path, broken: Callable[[Map], Map], said: list[str]) -> None:
    found = broken(read_map(root)).problems()
    assert len(found) == len(said), found
    assert all(each.startswith(words) for each, words in zip(found, said, strict=True)), found


def test_the_built_book_shows_its_map(root: Path) -> None:
    assert book.main(["--stored", "--root", str(root)]) == 0
    html = root / "_build" / "html" / "book"
    rows = re.findall(r'<li class="map-(?:box|chapter)".*?</li>', (html / "map.html").read_text(), flags=re.DOTALL)
    names = [re.sub(r"<svg.*?</svg>|<[^>]*>", " ", row).split() for row in rows]
    assert [" ".join(words) for words in names] == [
        "Theory",
        "A die definition, paper",
        "C1, one throw lemma, derived C1",
        "Many throws theorem, derived, leading order C2 uses C1, one throw , A die",
        "Cheating corollary, derived not checked: nobody cheats here uses C1, one throw , Many throws",
        "Seen in computation: claims that check no box",
        "Title of single_head/01_a C3 C4",
    ]
    assert 'href="single_head_theory.html#thm-many"' in rows[3]
    assert 'href="ledger.html#claim-c2"' in rows[3]
    assert [len(re.findall('<path class="head"', row)) for row in rows] == [0, 0, 0, 2, 2, 0, 0]
    theory = (html / "single_head_theory.html").read_text()
    lines = [re.sub("<[^>]*>", "", line) for line in re.findall(r'<p class="box-claims">.*?</p>', theory)]
    assert lines == ["Checked by C1", "Checked by C2", "Checked by no claim: nobody cheats here"]
    ledger = (html / "ledger.html").read_text()
    assert '<dt>Box</dt><dd><a href="single_head_theory.html#thm-many">Many throws</a></dd>' in ledger
    assert (
        '<dt>Uses</dt><dd><a href="#claim-c1">C1</a>, <a href="single_head_theory.html#def-die">A die</a></dd>'
        in ledger
    )
    assert "data-verdict" not in ledger  # a mark of what does not hold
    preface = (html / "preface.html").read_text()
    said = '<span class="claim-id">C2 </span><span class="visually-hidden">holds</span></a>'
    assert re.search(rf'<a class="verdict-holds" title="C2, [^"]*: holds" href="ledger.html#claim-c2">{said}', preface)


def test_a_row_has_a_line_for_four_claims() -> None:
    assert [Row([], [{}] * claims, "map-box").lines for claims in (0, 4, 5, 9)] == [1, 1, 2, 3]


def test_the_map_of_this_book_has_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    known = read_map(REPOSITORY)
    assert known.problems() == []
    assert len(known.boxes) > 150
    assert len(known.claims) > 350
    assert "prop-mean-field" in known.falls_with("thm-closed-forms")
