"""Another book with the same kit: two pages, a claim, a sweep, an edition, where neither `attnlib` nor `attnbook` can be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import PACKAGES
from tests.tiny_book import page_text, write

pytestmark = pytest.mark.weekly

DICE = """
import numpy as np

def throws(count, seed):
    return np.random.default_rng(seed).integers(1, 7, size=count)
"""
CLAIMS = '''
import torch
from bookkit.claims import ClaimSet
from bookkit.rules import agrees

CLAIMS = ClaimSet("dice")

@CLAIMS.claim("D1", wrong=1.1)
def mean_of_a_die(many, constant):
    """the mean is 7/2
    $E X = 7/2$
    wrong: a mean of 3.85"""
    return agrees(many.double().mean(1), constant * 3.5)
'''
MEAN = (
    ":tags: [parameters]\n\ncount: int = 400  # throws of each run [>= 2]\nseed: int = 0  # of the throws [>= 0]",
    "import torch\nfrom bookkit.results import record\nfrom dice import throws\nfrom dice.claims import CLAIMS\n\n"
    "many = torch.as_tensor(throws((12, count), seed))\nrecord(mean=many.double().mean().item())",
    "from bookkit.claims import verdict_table\n\nverdict_table(CLAIMS.check(many))",
)
SOLUTION = "The square of the spread is 35/12, as a sum over six faces shows."
SPREAD = "from dice import throws\n\nprint(f'{throws(10_000, 1).std():.2f}')"
CONFIG = """
title: Dice
author: Nobody
exclude_patterns: ["notebooks/**.md"]
execute: {execute_notebooks: "off"}
repository: {url: "https://github.com/nobody/dice", branch: main}
parse: {myst_enable_extensions: [amsmath, attrs_inline, colon_fence, dollarmath]}
sphinx:
  extra_extensions: [bookkit.sphinx.extension]
  config: {suppress_warnings: [mystnb.unknown_mime_type], myst_heading_anchors: 3}
"""
SETTINGS = """
[project]
name = "dice"
version = "1.2"
[tool.bookkit]
packages = ["code/dice"]
command = "bookkit"
[tool.bookkit.parts]
dice = { number = "I", title = "Dice" }
"""
REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("attnlib", "attnbook"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dice")
    write(folder / "code" / "dice" / "__init__.py", DICE)
    write(folder / "code" / "dice" / "claims.py", CLAIMS)
    write(folder / "notebooks" / "dice" / "01_mean.md", page_text(*MEAN, title="The mean"))
    spread = page_text(SPREAD, title="The spread")
    write(
        folder / "notebooks" / "dice" / "02_spread.md",
        f"{spread}<details>\n<summary>Solutions</summary>\n\n{SOLUTION}\n\n</details>\n",
    )
    write(
        folder / "book" / "preface.md",
        "# Dice\n\n{ledger-counts}`all`; {ledger-replication}`all`. See {ref}`claim-d1`.\n",
    )
    write(folder / "book" / "ledger.md", "# The ledger\n\n```{ledger}\n```\n")
    toc = ["format: jb-book", "root: book/preface", "chapters:"]
    toc += [f"- file: {name}" for name in ("notebooks/dice/01_mean", "notebooks/dice/02_spread", "book/ledger")]
    write(folder / "_toc.yml", "\n".join(toc) + "\n")
    write(folder / "_config.yml", CONFIG)
    write(folder / "pyproject.toml", SETTINGS)
    write(folder / "requirements.txt", "numpy>=2\n")
    write(folder / "grid.yml", "product: {count: [100, 400]}\nseeds: 2\n")
    write(folder / "elsewhere" / "sitecustomize.py", REFUSE)
    run(folder, "-m", "bookkit", "notebooks")
    run(folder, "-m", "bookkit.book", "--stored")
    return folder


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    """What a command of the book says, in an environment where `attnlib` and `attnbook` cannot be imported."""
    path = os.pathsep.join(map(str, (folder / "elsewhere", folder / "code", PACKAGES["bookkit"].parent)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": ""}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_attnlib_is_not_there(root: Path) -> None:
    code = "import importlib\ntry:\n    import attnlib\nexcept ModuleNotFoundError:\n    print('refused')"
    assert run(root, "-c", code) == "refused\n"


def test_its_ledger_has_its_claim(root: Path) -> None:
    (claim,) = json.loads((root / "_build" / "html" / "ledger.json").read_text(encoding="utf-8"))
    assert (claim["id"], claim["verdict"], claim["negative_control"]["verdict"]) == ("D1", "holds", "fails")
    assert claim["function"] == "dice.claims.mean_of_a_die"
    assert claim["command"].startswith(".venv/bin/python -m bookkit rerun dice/01_mean -o out.ipynb && ")
    ledger = (root / "_build" / "html" / "book" / "ledger.html").read_text(encoding="utf-8")
    assert 'id="claim-d1"' in ledger
    assert "code/dice/claims.py" in ledger  # the way to its judge
    assert "1 claim: 1 holds" in (root / "_build" / "html" / "book" / "preface.html").read_text(encoding="utf-8")


def test_its_sweep_has_its_table(root: Path) -> None:
    run(root, "-m", "bookkit", "sweep", "mean", "grid.yml", "-o", "out", "--workers", "1")
    show = "from bookkit.sweeps import open_sweep\ntable = open_sweep('out').table\n"
    show += "print(*table['count'], (table['mean'] - 3.5).abs().max() < 0.5)"
    assert run(root, "-c", show) == "100 100 400 400 True\n"


def test_its_claim_is_registered_then_judged_at_fresh_seeds(root: Path) -> None:
    preface = (root / "_build" / "html" / "book" / "preface.html").read_text(encoding="utf-8")
    assert "not judged at fresh seeds yet" in preface
    replicate = ("-m", "bookkit", "replicate", "mean", "--seeds", "3", "--workers", "1")
    said = run(root, *replicate, "--write", code=2)
    assert "1 claims are not registered as they stand (D1): bookkit register" in said
    assert "1 claims" in run(root, "-m", "bookkit", "register", "--because", "first registration")
    said = run(root, *replicate, "--write")
    assert "1 claims at 3 seeds (dice 1.2: seed k): 0 of 3 verdicts unexpected" in said
    table = json.loads((root / "book" / "replication.json").read_text(encoding="utf-8"))
    assert table["claims"]["D1"] | {"fingerprint": "", "low": 0, "high": 0} == {
        "page": "dice/01_mean", "fingerprint": "", "seeds": 3, "as_expected": 3, "outside": 0, "control_told": 3,
        "false_alarm": 1e-4, "number": "measured", "low": 0, "high": 0,
    }  # fmt: skip
    # The three seeds by hand: means of 4800 throws.
    code = (
        "from hashlib import sha256\nfrom dice import throws\n"
        "seeds = [int(sha256(f'dice 1.2: seed {k}'.encode()).hexdigest()[:8], 16) // 2 for k in range(3)]\n"
        "means = [throws((12, 400), seed).mean() for seed in seeds]\nprint(f'{min(means):.6g} {max(means):.6g}')"
    )
    assert run(root, "-c", code).split() == [f"{table['claims']['D1'][end]:.6g}" for end in ("low", "high")]
    run(root, "-m", "bookkit.book", "--stored")
    preface = (root / "_build" / "html" / "book" / "preface.html").read_text(encoding="utf-8")
    assert "at 3 fresh seeds 3 verdicts on 1 claims, none of them unexpected" in preface
    ledger = (root / "_build" / "html" / "book" / "ledger.html").read_text(encoding="utf-8")
    assert ">3/3</i>" in ledger
    assert "negative control told apart at 3" in ledger
    (claim,) = json.loads((root / "_build" / "html" / "ledger.json").read_text(encoding="utf-8"))
    assert claim["replication"] == {"seeds": 3, "as_expected": 3, "outside": 0, "control_told": 3}
    # A sharper bound is another claim: what was counted of the old one is not shown of it.
    claims = root / "code" / "dice" / "claims.py"
    claims.write_text(CLAIMS.replace("constant * 3.5", "constant * 3.50001"), encoding="utf-8")
    assert "D1" in run(root, *replicate, "--write", code=2)
    claims.write_text(CLAIMS, encoding="utf-8")


def test_its_student_edition_holds_no_solution(root: Path) -> None:
    run(root, "-m", "bookkit.book", "--stored", "--edition", "student")
    pages = {
        edition: (root / folder / "notebooks/dice/02_spread.html").read_text(encoding="utf-8")
        for edition, folder in {"teacher": "_build/html", "student": "_build/student/html"}.items()
    }
    assert SOLUTION in pages["teacher"]
    assert SOLUTION not in pages["student"]
