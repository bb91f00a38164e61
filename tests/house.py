"""Where the code of the repository lies: three packages, two of them below book/."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
PACKAGES = {"attnlib": ROOT / "attnlib", "attnbook": ROOT / "book" / "attnbook", "bookkit": ROOT / "book" / "bookkit"}


def module_name(path: Path) -> str:
    """Dotted name of a file of one of the packages."""
    home = next(folder for folder in PACKAGES.values() if path.is_relative_to(folder)).parent
    parts = path.relative_to(home).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files(*packages: str) -> list[Path]:
    """All modules of these packages, or of all."""
    return [path for name in packages or PACKAGES for path in sorted(PACKAGES[name].rglob("*.py"))]
