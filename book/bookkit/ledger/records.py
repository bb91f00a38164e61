"""The records of the ledger: read from the pages that are rendered, checked, counted, chosen, completed for readers.

Nothing here needs Sphinx. A record is what `bookkit.claims.Check.as_record` wrote into a page, with its `page` and
`page_title`.
"""

import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from bookkit.pages import tolerances
from bookkit.pages.catalogue import UserError, find_root, one_line
from bookkit.results import CLAIMS_TYPE, read
from bookkit.settings import Part, settings
from bookkit.sharpness import ACCEPTED, NoNumber, of_record, too_coarse

LEDGER = "book/ledger"  # the page to which permalinks lead
# What every record says in words.
SAID = (
    "id", "title", "statement", "source", "part", "regime", "predicted", "measured", "rule", "verdict", "expected", "violated",
    "function",
)  # fmt: skip


# Source tags of `bookkit.claims`, in the order in which they are shown apart; a test holds the two together.
SOURCES = {
    "paper": "Said by a paper",
    "paper, second-hand": "Said of a paper",
    "authors' code": "Read off the authors' code",
    "certified": "Certified",
    "derived": "Derived",
    "measured": "Measured",
    "conjecture": "Conjectures",
}
# By verdict: the word in `{ledger-counts}` and in addresses, and the words for one claim and for several.
VERDICTS = {
    "holds": ("holds", "holds", "hold"),
    "not contradicted": ("undecided", "is not contradicted", "are not contradicted"),
    "fails": ("fails", "fails as expected", "fail as expected"),
    "outside its regime": ("outside", "is outside its regime", "are outside their regime"),
}


# --- reading --------------------------------------------------------------------------------------------------------


def read_ledger(source: Path) -> list[dict[str, Any]]:
    """Check records stored in the notebooks under `source`/notebooks, in the order of their names.

    Each has its `page`, the path of the notebook below `source` without suffix, and its `page_title`.
    """
    return [{**check, "page": name} for name, path in notebooks(source) for check in read_page_checks(path)]


def notebooks(source: Path) -> Iterator[tuple[str, Path]]:
    """Name (`notebooks/single_head/02_two_steps`) and path of every notebook under `source`, none of a hidden folder."""
    for path in sorted((source / "notebooks").rglob("*.ipynb")):
        inside = path.relative_to(source)
        if not any(part.startswith(".") for part in inside.parts):
            yield inside.with_suffix("").as_posix(), path


def read_page_checks(path: Path) -> list[dict[str, Any]]:
    """Check records stored in one notebook, each with its `page_title`."""
    return [dict(check) for check in _page_checks(path, path.stat().st_mtime_ns)]


@cache
def _page_checks(path: Path, changed: int) -> list[dict[str, Any]]:
    # Kept: every page that counts claims asks for all notebooks, several times, and pictures make them large.
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises its own, json's, and plain AttributeError for JSON that is no notebook
        raise UserError(f"{path} is not a whole notebook: {one_line(error)}") from error
    known, found = tolerances.read(path).numbers, []
    for check in checks_of(notebook):
        if not (isinstance(check, dict) and isinstance(check.get("numbers", {}), dict)):
            raise UserError(f"{path} holds a claim that is no record: execute the page again")
        # How many digits of its numbers stand on other machines, where that was measured.
        standing = {
            name: tolerances.standing(value, known[f"{check['id']}:{name}"].allowed)
            for name, value in check.get("numbers", {}).items()
            if isinstance(value, float) and f"{check['id']}:{name}" in known
        }
        found.append({**check, "page_title": _title(notebook), "standing": standing})
    return found


def tables_of(path: Path) -> dict[str, str]:
    """The stored tables that a notebook's run had read, and their hashes."""
    return dict(_metadata(path, path.stat().st_mtime_ns).get("tables", {}))


@cache
def _metadata(path: Path, changed: int) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))["metadata"])


def checks_of(notebook: Any) -> list[dict[str, Any]]:
    """The check records of an executed notebook, in order."""
    payloads = read(notebook, CLAIMS_TYPE)
    return [record for payload in payloads for record in (payload if isinstance(payload, list) else [payload])]


def whole(records: list[dict[str, Any]], where: object) -> list[dict[str, Any]]:
    """`records`, where each has all that readers are told of a claim. Raises `UserError` that names what lacks, or is of another kind."""
    for record in records:
        control = record.get("negative_control") if isinstance(record, dict) else None
        if not isinstance(control, dict) or "id" not in record:
            raise UserError(f"{where} holds no checked claims: execute a page that checks some first")
        said = {name: record.get(name) for name in SAID} | {
            f"its control's {name}": control.get(name) for name in ("wrong", "verdict")
        }
        wrong = [name for name, text in said.items() if not isinstance(text, str)]
        if not isinstance(record.get("draws"), int):
            wrong.append("draws")
        if wrong:
            raise UserError(
                f"{where} holds claims of another version, without {', '.join(wrong)}: execute the page again"
            )
    return records


def _title(notebook: Any) -> str:
    """The first heading, as plain words."""
    texts = "\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    found = re.search(r"^# +(.+?)\s*$", texts, flags=re.M)
    return re.sub(r"[*`$]", "", found[1]) if found else "A page"


def in_reading_order(records: Iterable[dict]) -> list[dict]:
    """Part by part, pages and claims as they are; folders that the book names as no part come last."""
    order = {part_name: number for number, part_name in enumerate(settings().parts)}
    return sorted(records, key=lambda record: (order.get(record["part"], len(order)), record["part"]))


def part_of(part_name: str) -> Part:
    """The part of that name; one that has no number goes by its own name."""
    return settings().parts.get(part_name) or Part("", part_name.replace("_", " ").capitalize())


# --- what readers see -----------------------------------------------------------------------------------------------


def anchor(claim_id: str) -> str:
    """Permanent name of a claim in the HTML: C8 -> claim-c8. Links from outside rely on it."""
    return "claim-" + re.sub(r"[^a-z0-9]+", "-", claim_id.lower()).strip("-")


def shown(claim_id: str, part_name: str) -> str:
    """The id as readers see it: one that looks like a page's number, I11 beside I.11, carries that of its own part, III-I11."""
    own, taken = part_of(part_name).number, {part.number for part in settings().parts.values()}
    return f"{own}-{claim_id}" if own and re.sub(r"\d.*", "", claim_id) in taken else claim_id


def page_name(record: dict) -> str:
    """The page as commands and readers name it: `single_head/02_two_steps`."""
    return record["page"].removeprefix("notebooks/")


def commands(record: dict) -> tuple[str, str]:
    """Two lines for a shell: run the page again, read this claim out of what it left."""
    start = f".venv/bin/{settings().program}"
    return (
        f"{start} rerun {page_name(record)} -o out.ipynb --force",
        f"{start} claims out.ipynb {shlex.quote(record['id'])}",
    )


def as_published(record: dict, uri: Any = lambda page: f"{page}.html") -> dict[str, Any]:
    """The record of `ledger.json`: all that the page stored, and what a program needs to come back to the book."""
    return {
        **record,
        "page": uri(record["page"]),
        "permalink": f"{uri(LEDGER)}#{anchor(record['id'])}",
        "command": " && ".join(commands(record)),
        "paper": part_of(record["part"]).paper or None,
    }


def source_line(function: str, root: Path | None = None) -> tuple[str, int] | None:
    """(file in the repository, line) of the def of `package.room.claims.name`; None where it is not to be found.

    Read from the text: importing the module would import all that it needs. Of a function made by another,
    `module.outer.inner`, the inner def counts; where it was given its name at run time, the outer.
    """
    root = root or find_root()
    names = function.split(".")
    folder = next((root / name for name in settings(root).packages if Path(name).name == names[0]), None)
    for cut in range(len(names) - 1, 1, -1) if folder else ():
        path = folder.joinpath(*names[1:cut]).with_suffix(".py")
        if path.is_file():
            lines = _definitions(path)
            wanted = [name for name in names[cut:] if name != "<locals>"]
            inside = [line for end in range(len(wanted), 0, -1) if (line := lines.get(".".join(wanted[:end])))]
            return (path.relative_to(root).as_posix(), inside[0]) if inside else None
    return None


@cache
def _definitions(path: Path) -> dict[str, int]:
    """Line of every def of a module, by its dotted name (`outer.inner` for one inside another)."""
    found: dict[str, int] = {}

    def walk(body: Iterable[ast.AST], before: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[f"{before}{node.name}"] = node.lineno
                walk(node.body, f"{before}{node.name}.")
            else:
                walk(ast.iter_child_nodes(node), before)

    walk(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


# --- rules and counts -----------------------------------------------------------------------------------------------


def problems(records: list[dict]) -> list[str]:
    """What a ledger must not hold, in words: verdicts against expectation, checks without power, ids used twice."""
    found = []
    for record in records:
        where = f"claim {record['id']} ({record['page']})"
        pooled = record.get("pooled", {"verdict": record["expected"]})
        # A page's few draws may decide nothing: then those of all seeds must.
        open_here = record["verdict"] == "not contradicted" and "pooled" in record
        if record["verdict"] != record["expected"] and not (open_here and record["expected"] in ACCEPTED):
            reason = f"; {record['violated']}" if record.get("violated") else ""
            found.append(
                f"{where}: verdict is {record['verdict']!r}, expected {record['expected']!r} "
                f"[predicted {record['predicted']}; measured {record['measured']}{reason}]"
            )
        if pooled["verdict"] != record["expected"] and record["verdict"] != "outside its regime":
            found.append(
                f"{where}: the draws of all {pooled['seeds']} seeds together say {pooled['verdict']!r}, expected {record['expected']!r}"
            )
        control = record.get("negative_control")
        if control and record["verdict"] == control["verdict"] == "holds":
            found.append(
                f"{where}: the negative control ({control['wrong']}) holds too: this check would not notice an error"
            )
        found += [f"{where}: {what}" for what in _unsharp(record)]
    pages: dict[str, list[str]] = {}
    for record in records:
        pages.setdefault(anchor(record["id"]), []).append(record["page"])
    for name, places in pages.items():
        if len(places) > 1:
            found.append(f"{name} is recorded {len(places)} times ({', '.join(places)}): each check needs its own id")
    return found


def _unsharp(record: dict) -> Iterator[str]:
    """What a claim must say of its own sharpness, and does not."""
    parts = of_record(record)
    for part in dict.fromkeys((*of_record({"parts": record.get("parts", [])}), *parts)):
        if isinstance(part, NoNumber):
            yield f"{part.words}: mend what made nan, or give `silent` the values that have nothing to say (bookkit.rules)"
    if record["verdict"] not in ACCEPTED or "negative_control" not in record:
        return
    control, reasons = record["negative_control"], record.get("coarse", "")
    numbers = [str(n) for n in range(1, len(parts) + 1)]
    if not parts:
        yield "it does not say what its rule could have refused: `Evidence` needs parts (bookkit.sharpness)"
    if isinstance(reasons, str):
        if reasons and len(parts) > 1:
            yield f"'coarse: ...' is one reason for {len(parts)} parts: name the part of each, as in 'coarse 2: ...'"
        reasons = dict.fromkeys(numbers, reasons)
    if unknown := sorted(set(reasons) - set(numbers)):
        yield f"'coarse {unknown[0]}: ...' names no part: it has {len(parts)}"
    lines = f"give the reason in a line 'coarse{' N' if len(parts) > 1 else ''}: ...' of the judge's docstring"
    for number, part in zip(numbers, parts, strict=True):
        if (coarse := too_coarse([part])) and not reasons.get(number):
            where = f"part {number} of {len(parts)}" if len(parts) > 1 else "it"
            yield f"{where} holds only {coarse}: sharpen it, claim less, or {lines}"
    if control.get("no_number"):
        yield f"its negative control ({control['wrong']}) is refused only because it makes values that are no number"
    if control.get("impossible"):
        yield f"no data could make its negative control ({control['wrong']}) hold: a mean between ends that are exchanged"
    if parts and not control.get("told"):
        yield f"its negative control ({control['wrong']}) is judged by other rules than the claim, so it is no world for the same data"
    blind = [
        number
        for number, part, told in zip(numbers, parts, control.get("told", ()), strict=False)
        if not told and part.blind and not reasons.get(number)
    ]
    if blind:
        yield (
            f"no negative control refuses part {', '.join(blind)} of {len(parts)}, and only a bound tighter by more than a factor of 2 "
            f"would be: tighten it, give `wrong` a value for each part, or {lines}"
        )


def counts_sentence(records: list[dict], what: str = "claim") -> str:
    """As in "18 claims: 14 hold, 2 fail as expected, 2 are outside their regime"."""
    total = f"{len(records)} {what if len(records) == 1 else what.replace('claim', 'claims')}"
    if not records:
        return total
    as_expected = Counter(r["verdict"] for r in records if r["verdict"] == r["expected"])
    parts = [
        f"{as_expected[verdict]} {one if as_expected[verdict] == 1 else several}"
        for verdict, (_, one, several) in VERDICTS.items()
        if as_expected[verdict]
    ]
    if surprises := len(records) - as_expected.total():
        parts.append(f"{surprises} against expectation")
    return f"{total}: {', '.join(parts)}"


def counted(text: str, records: list[dict]) -> str:
    """What `{ledger-counts}` prints: a number alone where one is asked for, else the sentence.

    `text` is a list of words in any order: a place (all, a part, an arXiv number, a page), a source tag, and claims,
    pages, holds, fails or outside for a number alone. Raises LookupError, with what there is, for anything else.
    """
    wanted, ask, rest = records, "", f"{text.strip()} "
    numbers = {"claims": None, "pages": None} | {name: verdict for verdict, (name, _, _) in VERDICTS.items()}
    places = _places(records)
    while rest.strip():
        # Source tags hold spaces: the longest name counts.
        known = [*places, *SOURCES, *(() if ask else numbers)]
        name = max((each for each in known if rest.startswith(f"{each} ")), key=len, default="")
        if name in numbers:
            ask = name
        elif name in SOURCES:
            wanted = [record for record in wanted if record["source"] == name]
        elif name:
            wanted = [record for record in wanted if record["id"] in places[name]]
        else:
            raise LookupError(_unknown(rest.split()[0], records, [*places, *SOURCES, *numbers]))
        rest = rest.removeprefix(name).lstrip()
    if not ask:
        return counts_sentence(wanted)
    if ask == "pages":
        return str(len({record["page"] for record in wanted}))
    return str(sum(ask == "claims" or record["verdict"] == numbers[ask] for record in wanted))


def _unknown(word: str, records: list[dict], known: list[str]) -> str:
    if word not in settings().parts:
        return f"unknown word {word!r}; there are {', '.join(known)}"
    # The one mistake that a book in the making can hold.
    parts = ", ".join(sorted({record["part"] for record in records})) or "none"
    return f"no check of part {word!r}; parts: {parts}"


def _places(records: list[dict]) -> dict[str, set[str]]:
    """Names under which records can be counted, and the ids of those: all, parts, papers, pages."""
    papers = {part: part_of(part).paper for part in {record["part"] for record in records}}
    found = {"all": {record["id"] for record in records}}
    for kind in (lambda r: [r["part"]], lambda r: [papers[r["part"]]], lambda r: [page_name(r), r["page"]]):
        for record in records:
            for name in filter(None, kind(record)):
                found.setdefault(name, set()).add(record["id"])
    return found
