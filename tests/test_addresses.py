"""The repository's address stands in pyproject.toml, and no other passes for it: "Under another address" in book/running.md."""

import re
import subprocess

from tests.house import REPOSITORY, ROOT

# What stands before owner/name: a page, a clone over ssh, Colab, raw files.
ADDRESS = re.compile(r"(?:github\.com[/:]|/github/|raw\.githubusercontent\.com/)([\w-]+)/([\w.-]*[\w-])", re.ASCII)
# Files that speak for this repository: every GitHub address in them must be ours, apart from those of instructions.
SPEAKING = (
    "README.md",
    "CITATION.cff",
    "_config.yml",
    "Makefile",
    "pyproject.toml",
    ".github/",
    ".ci/",
    "notebooks/",
    "book/",
)
OTHERS = {("owner", "name"), ("you", "your-fork")}
OURS = tuple(REPOSITORY.removeprefix("https://github.com/").split("/"))


def addresses(text: str) -> set[tuple[str, ...]]:
    return {(owner, name.removesuffix(".git")) for owner, name in ADDRESS.findall(text)}


def foreign(texts: dict[str, str], ours: tuple[str, ...]) -> list[str]:
    """Addresses that pass for ours: any other one in the files that speak for us, half of ours anywhere."""
    return [
        f"{file}: {owner}/{name}"
        for file, text in texts.items()
        for owner, name in sorted(addresses(text) - {ours} - OTHERS)
        if file.startswith(SPEAKING) or owner == ours[0] or name == ours[1]
    ]


def test_no_other_address_passes_for_ours() -> None:
    found = subprocess.run(
        ["git", "grep", "-zlI", "github", "--", ".", ":!tests"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in found.stdout.split("\0") if name}
    assert foreign(texts, OURS) == []
    # What must name us does: otherwise the line above would also hold in an empty repository.
    assert {"pyproject.toml", "_config.yml", "CITATION.cff"} <= {
        file for file, text in texts.items() if OURS in addresses(text)
    }


def test_an_address_that_passes_for_ours_is_found() -> None:
    texts = {
        "README.md": "see https://github.com/other/thing",
        "notebooks/a.ipynb": "git+https://github.com/attention-checked/attention-checked.git",
        "attnlib/a.py": "https://github.com/other/attention-checked and github.com/third/party",
        "_config.yml": "https://colab.research.google.com/github/attention-checked/book/blob/main",
    }
    assert foreign(texts, ("attention-checked", "attention-checked")) == [
        "README.md: other/thing", "attnlib/a.py: other/attention-checked", "_config.yml: attention-checked/book",
    ]  # fmt: skip
