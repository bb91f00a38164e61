"""What a record of the ledger looks like in words: verdicts, signs, negative controls, the figures behind the words."""

import re
from collections.abc import Mapping

from bookkit.sharpness import ACCEPTED, of_record, resolutions

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def verdict_words(record: dict) -> str:
    """As in "fails as expected"; a surprise says so."""
    verdict = record["verdict"]
    if verdict != record["expected"]:
        return f"{verdict}, against expectation"
    return "fails as expected" if verdict == "fails" else verdict


def signs(text: str) -> str:
    """+-, inequalities, minus and powers as the signs that people read; text with formulas stays as it is."""
    if "$" in text:
        return text
    text = text.replace("+-", "±").replace("<=", "≤").replace(">=", "≥")
    text = re.sub(r"(?<=\w)\^(-?\d+)", lambda found: found[1].translate(SUPERSCRIPTS), text)
    return re.sub(r"(?<![\w)])-(?=\d)", "\N{MINUS SIGN}", text)


def told_apart(record: dict) -> bool:
    """Whether the negative control came out otherwise than the claim, and not for want of numbers."""
    control = record["negative_control"]
    return control["verdict"] != record["verdict"] and not control.get("no_number")


def control_words(record: dict) -> str:
    """What was changed, and what came of it."""
    control = record["negative_control"]
    told = "told apart" if told_apart(record) else "not told apart here"
    return f"{signs(control['wrong'])}: {control['verdict']}, {told}"


def sharpness_words(record: dict) -> str:
    """What the rule could have seen, where the claim holds: "to 3 %"; empty for other verdicts."""
    if record["verdict"] not in ACCEPTED:
        return ""
    return "; ".join(each.words for each in resolutions(of_record(record)))


def coarse_words(record: dict) -> str:
    """Why the rule sees no less, part by part; empty where no reason is given."""
    coarse = record.get("coarse", "")
    if isinstance(coarse, str):
        return coarse.rstrip(".")
    parts: dict[str, list[str]] = {}
    for number, reason in coarse.items():
        parts.setdefault(reason.rstrip("."), []).append(number)
    return "; ".join(f"part {' and '.join(numbers)}: {reason}" for reason, numbers in parts.items())


def rule_words(record: dict) -> str:
    """The rule, the number of draws, and how often chance alone makes it reject what is true."""
    alarm = record.get("false_alarm", 0.0)
    draws = f", over {record['draws']} draw{'' if record['draws'] == 1 else 's'}"
    chance = f"; rejects a true claim with probability at most {alarm:.1g}" if alarm else ""
    return signs(record["rule"]) + draws + chance


def number_lines(numbers: dict[str, float | None], standing: Mapping[str, int] | None = None) -> list[str]:
    """The figures behind the words, one line per part of a claim: "measured 1.00097 ± 0.00123, predicted 1".

    Names that end in _1, _2, ... belong to the parts of `bookkit.rules.both`; a value and its standard error are
    joined by ±. Six digits, or fewer where fewer stand on every machine (`standing`); all of them are in `ledger.json`.
    """
    lines: dict[str, dict[str, str]] = {}
    for name, value in numbers.items():
        found = re.fullmatch(r"(.+?)((?:_\d+)+)", name)
        plain, place = (found[1], found[2][1:].replace("_", ".")) if found else (name, "")
        most = 3 if plain in _ERRORS.values() else 6
        lines.setdefault(place, {})[plain] = _digits(value, min(most, (standing or {}).get(name, most)))
    several = len(lines) > 1
    return [
        (f"part {place}: " if place and several else "") + _joined(lines[place])
        for place in sorted(lines, key=lambda place: [int(number) for number in place.split(".") if number])
    ]


_ERRORS = {"measured": "standard_error", "mean": "standard_error", "mean_difference": "standard_error_of_difference"}
_ORDER = ("predicted", "measured", "mean", "mean_difference", "low", "high", "min", "max", "failures")


def spoken(name: str) -> str:
    """The name of a figure as a reader sees it."""
    return name.replace("share", "fraction").replace("_", " ")


def _joined(values: dict[str, str]) -> str:
    rest = dict(values)
    parts = []
    for name in sorted(values, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)):
        if name not in rest:
            continue
        text = f"{spoken(name)} {rest.pop(name)}"
        error = _ERRORS.get(name)
        if error in rest:
            text += f" ± {rest.pop(error)}"
        parts.append(text)
    return ", ".join(parts)


def _digits(value: float | None, digits: int) -> str:
    """`value` as people read it; None is a value that JSON cannot hold."""
    if value is None or isinstance(value, bool | str):
        return "n/a" if value is None else str(value)
    return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}")
