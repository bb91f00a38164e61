"""Pictures of the built book: the same pixels in fewer bytes, and their place kept free while they load."""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from bookkit.panels import KEY, stacked

NARROW = '<source media="(max-width: 600px)" width="{}" height="{}" srcset="{}" class="stacked">'
NEAR_THE_TOP = 4000  # characters of HTML into the article: what is seen first


@dataclass(frozen=True)
class Picture:
    """A picture as it lies in the built book: file name, and both sides in pixels."""

    name: str
    width: int
    height: int
    panels: "Picture | None" = None  # the same one below the other, for a narrow screen


def lightened(folder: Path, cache: Path | None = None) -> dict[str, Picture]:
    """Write each PNG of `folder` as lossless WebP beside it and remove the PNG; name of the PNG -> the new picture.

    A picture that would grow is left as it is. `cache`: a folder that keeps the WebP files by the hash of their PNG.
    Raises ValueError with the name of a file that is no picture.
    """
    paths = sorted(folder.glob("*.png"))
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:  # Pillow lets go of the interpreter while it compresses
        made = dict(pool.map(lambda path: (path.name, _lightened(path, cache)), paths))
    for path in folder.iterdir():
        if path.suffix in (".webp", ".jpg", ".jpeg", ".gif"):
            with Image.open(path) as image:
                made.setdefault(path.name, Picture(path.name, *image.size))
    return made


def remember(folder: Path, cache: Path) -> None:
    """Compress every PNG below `folder` into `cache`, so that `lightened` finds it there. One that is no picture is left to it."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as aside:
        for path in sorted(folder.rglob("*.png")):
            with contextlib.suppress(ValueError):
                _lightened(Path(shutil.copy(path, aside)), cache)


def _lightened(path: Path, cache: Path | None) -> Picture:
    target, below = path.with_suffix(".webp"), path.with_name(f"{path.stem}-panels.webp")
    kept = cache / hashlib.sha256(path.read_bytes()).hexdigest() if cache else None
    try:
        with Image.open(path) as image:
            size, panels = image.size, None
            _write(lambda: _opaque(image), target, kept and kept.with_suffix(".webp"))
            if KEY in image.info:
                _write(lambda: stacked(image), below, kept and kept.with_suffix(".panels.webp"))
                with Image.open(below) as part:
                    panels = Picture(below.name, *part.size)
    except OSError as error:
        raise ValueError(f"{path.name} is not a picture that can be read ({error}): make the page again") from None
    if target.stat().st_size >= path.stat().st_size:
        target.unlink()
        return Picture(path.name, *size, panels)
    path.unlink()
    return Picture(target.name, *size, panels)


def _opaque(image: Image.Image) -> Image.Image:
    """An alpha channel that hides nothing is no pixel of the picture."""
    return image.convert("RGB") if image.mode == "RGBA" and image.getextrema()[3] == (255, 255) else image


def _write(draw: Callable[[], Image.Image], target: Path, kept: Path | None) -> None:
    """A picture as lossless WebP; `kept`: its file in the cache, which is taken where it is there."""
    if kept is not None and kept.is_file():
        shutil.copyfile(kept, target)
        return
    draw().save(target, "WEBP", lossless=True, exact=True, quality=75, method=1)
    if kept is not None:
        half = kept.with_suffix(f".{os.getpid()}-{target.stem}")  # a reader sees the whole file or none
        shutil.copyfile(target, half)
        half.replace(kept)


def place_pictures(page: str, pictures: dict[str, Picture]) -> str:
    """The page's HTML with the new names, and for each picture of `_images/`: its sides, and loading when it comes near.

    Both sides are stated, so that the page keeps the place free. The first picture of the page is not put off.
    """
    seen = 0

    def placed(match: re.Match) -> str:
        nonlocal seen
        tag = match[0]
        source = re.search(r'src="[^"]*?_images/([^"/?]+)', tag)
        additions = ""
        if source is None:
            return _with(tag, ' loading="lazy" decoding="async"')
        picture = pictures.get(source[1])
        if picture is not None:
            tag = tag.replace(source[1], picture.name)
            if not re.search(r'\s(width|height)="', tag):
                additions += _sides(tag, picture)
        seen += 1
        if seen > 1:
            additions += ' loading="lazy"'
        elif match.start() - page.find("<article") < NEAR_THE_TOP:
            additions += ' fetchpriority="high"'
        return _panelled(_with(tag, f'{additions} decoding="async"'), source, picture)

    page = re.sub(r'(?<!"stacked">)<img\b[^>]*>', placed, page)
    # Links to pictures.
    return re.sub(
        r'(_images/)([^"/?]+\.png)',
        lambda match: match[1] + (pictures[match[2]].name if match[2] in pictures else match[2]),
        page,
    )


def _panelled(tag: str, source: re.Match, picture: Picture | None) -> str:
    """The tag, and for a narrow screen the same picture with its panels one below the other, at the same scale."""
    if picture is None or picture.panels is None or "small-picture" in tag:
        return tag
    panels, width = picture.panels, int(re.search(r'\swidth="(\d+)"', tag)[1])
    place = source[0].removeprefix('src="').removesuffix(source[1]) + panels.name
    sides = (round(side * width / picture.width) for side in (panels.width, panels.height))
    return f"<picture>{NARROW.format(*sides, place)}{tag}</picture>"


def _sides(tag: str, picture: Picture) -> str:
    """Attributes width and height: as wide as the page says, else as the picture is; the height in proportion."""
    stated = re.search(r'style="[^"]*?\bwidth:\s*([\d.]+)px', tag)
    width = round(float(stated[1])) if stated else picture.width
    return f' width="{width}" height="{round(width * picture.height / picture.width)}"'


def _with(tag: str, attributes: str) -> str:
    """The tag with the attributes it does not have yet."""
    known = set(re.findall(r"\s([\w-]+)=", tag))
    new = "".join(f" {each}" for each in attributes.split() if each.split("=")[0] not in known)
    end = "/>" if tag.endswith("/>") else ">"
    return tag[: -len(end)].rstrip() + new + (" />" if end == "/>" else ">")
