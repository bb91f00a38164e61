"""Pictures of all pages for people to look at: `python -m tests.browser.pictures FOLDER`.

Each page whole, on a desktop in light and dark, and on a phone. Reads `_build/html` (or the folder in BOOK_HTML).
"""

import sys
from pathlib import Path

from tests.browser.browsing import DESKTOP, PHONE, launched, page_names, served, visited

VIEWS = {"desktop": (DESKTOP, "light"), "dark": (DESKTOP, "dark"), "phone": (PHONE, "light")}


def main(folder: Path) -> int:
    """Write one PNG per page and view; returns the exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    names = page_names()
    if not names:
        print("error: no built pages: run `make html` first", file=sys.stderr)
        return 1
    with served() as address, launched() as browser:
        for name in names:
            for view, (viewport, scheme) in VIEWS.items():
                picture = folder / f"{name.removesuffix('.html').replace('/', '-')}-{view}.png"
                with visited(browser, address, name, viewport, scheme) as visit:
                    visit.page.screenshot(path=picture, full_page=True, animations="disabled")
                print(picture)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.browser.pictures FOLDER")
    sys.exit(main(Path(sys.argv[1])))
