"""One small page that has all the parts a page must have, and a book of one page around it."""

from pathlib import Path

from tests.house import REPOSITORY
from tests.tiny_book import HEADER

PAGE = (
    HEADER
    + """# A tiny page

A sum is $\\sum_i x_i$.

```{code-cell} ipython3
import importlib.util

if importlib.util.find_spec("attnlib") is None:
    %pip install -q --no-deps git+ADDRESS
    importlib.invalidate_caches()
```

```{code-cell} ipython3
:tags: [parameters]

n: int = 200  # training samples [at least 1]
label_noise: float = 0.05  # probability that a label is flipped, eta [0, 0.5]
step_size: float = 0.025  # beta of gradient descent [> 0]
mode: str = "reduced"  # law to draw from [reduced | dense]
verbose: bool = False  # whether to say more
```

```{code-cell} ipython3
from IPython.display import display

from bookkit.results import record

print(f"{n} samples, {mode}, rate {label_noise * step_size:.6f}")
```

```{code-cell} ipython3
---
mystnb:
  figure:
    caption: A line.
    name: fig-line
  image:
    alt: A straight line that rises from the lower left corner to the upper right one.
---
import matplotlib.pyplot as plt

plt.plot([0, 1], [0, step_size])
plt.show()
```

```{code-cell} ipython3
record(flipped=n * label_noise, samples=n)
claims = [{"id": "C1", "verdict": "holds", "numbers": {"slope": step_size / 3}}]
display({"text/plain": "claims", "application/vnd.attnlib.claims+json": claims}, raw=True)
```

```{code-cell} ipython3
:tags: [nbval-ignore-output]

print("attnlib")
```
""".replace("ADDRESS", REPOSITORY)
)


def make_book(root: Path, *, name: str = "part/01_tiny", text: str = PAGE) -> Path:
    """A book in `root` with one page, not executed. Returns `root`."""
    source = root / "notebooks" / f"{name}.md"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text, encoding="utf-8")
    (root / "_toc.yml").write_text(f"format: jb-book\nroot: book/preface\nchapters:\n- file: notebooks/{name}\n")
    (root / "requirements.txt").write_text("numpy==2.4.6\n")
    return root
