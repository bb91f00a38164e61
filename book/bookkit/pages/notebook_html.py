"""An executed notebook as one HTML file that any browser opens: `rerun PAGE -o mine.html`.

Nothing is fetched, and the file stands alone: formulas are drawn, and their font is inside.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bookkit.formulas.drawing import style, with_formulas

if TYPE_CHECKING:
    from nbformat import NotebookNode

# nbconvert's own template asks four hosts for scripts: MathJax 2, RequireJS, jQuery and Mermaid. None is of use here.
_TEMPLATE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_jquery -%}{%- endblock -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}<style>{{ resources.formulas | safe }}</style>{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
"""


def as_html(notebook: NotebookNode, title: str, root: Path) -> str:
    """The notebook as HTML: code and outputs, pictures and formulas; `root` is the clone, which may have a font for them."""
    from nbconvert import HTMLExporter

    folder = root / "book" / "assets" / "formulas"
    formulas = style(folder) if folder.is_dir() else ""
    exporter = HTMLExporter(raw_template=_TEMPLATE, exclude_input_prompt=True, exclude_output_prompt=True)
    body, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}, "formulas": formulas})
    return with_formulas(body)
