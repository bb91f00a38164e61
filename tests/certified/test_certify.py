"""The command `attnlib certify`: what it prints, its exit codes, a claim that is none, a library that is missing."""

import subprocess
import sys
from dataclasses import replace

import pytest

from attnbook.certified import certificate, certify
from attnbook.certified.certificate import Certificate
from attnbook.certified.judging import evidence
from bookkit.rules import NothingToMeasure


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = certify.main(arguments)
    return code, *capsys.readouterr()


def test_a_claim_is_proved_again(capsys) -> None:
    code, said, _ = run(capsys, "V1")
    assert code == 0
    assert said.startswith("V1  proved: ")
    assert "enclosure: [-16206.5203" in said
    assert "128 bits" in said
    assert "): refuted" in said


def test_a_claim_that_is_not_certified_is_refused_in_a_line(capsys) -> None:
    code, said, complaint = run(capsys, "V1", "C8")
    assert (code, said) == (2, "")
    assert complaint.startswith("attnlib certify: error: C8 is no certified claim; certified are V1, V2")
    assert complaint.count("\n") == 1
    assert run(capsys)[0] == 2


def test_the_list_names_every_certified_claim_once(capsys) -> None:
    code, said, _ = run(capsys, "--list")
    names = [line.split()[0] for line in said.splitlines()]
    assert code == 0
    assert names == list(certify.certified())
    assert len(set(names)) == len(names) >= 8
    assert all(claim.source == "certified" and claim.box for claim, _ in certify.certified().values())


def test_what_is_refuted_or_undecided_ends_with_one(capsys, monkeypatch) -> None:
    claim, make = certify.certified()["V1"]
    worse = [replace(claim, judge=lambda study, constant: evidence(Certificate("x", False, bits=64)))]
    worse.append(replace(claim, judge=lambda study, constant: evidence(Certificate("x", None, bits=64))))
    for other, word in zip(worse, ("refuted", "undecided"), strict=True):
        monkeypatch.setattr(certify, "certified", lambda other=other: {"V1": (other, make)})
        code, said, _ = run(capsys, "V1")
        assert code == 1
        assert said.startswith(f"V1  {word}: ")
    with pytest.raises(NothingToMeasure, match="undecided at 64 bits: x"):
        evidence(Certificate("x", None, bits=64))


def test_where_the_library_is_missing_the_extra_is_named(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    code, said, complaint = run(capsys, "V1")
    assert (code, said) == (2, "")
    assert "pip install 'attnlib[certified] @ git+https" in complaint
    with pytest.raises(certificate.NeedsFlint):
        certificate.ball(1)


def test_claims_are_read_without_the_library() -> None:
    program = "import sys; sys.modules['flint'] = None; from attnbook.certified.certify import certified; print(len(certified()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
