"""An executed notebook as one HTML file that any browser opens: `rerun PAGE -o mine.html`.

Nothing is fetched from another host. Formulas are drawn by the MathJax of the clone that made the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

# nbconvert's own template asks four hosts for scripts: MathJax 2, RequireJS, jQuery and Mermaid. Only the first is of use here.
_TEMPLATE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_jquery -%}{%- endblock -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}
<script>window.MathJax = {tex: {inlineMath: [["$", "$"]], processEscapes: true}};</script>
<script defer src="{{ resources.mathjax }}"></script>
{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
"""


def as_html(notebook: NotebookNode, title: str, root: Path) -> str:
    """The notebook as HTML, code and outputs, its pictures inside; `root` is the clone whose MathJax draws the formulas."""
    from nbconvert import HTMLExporter

    mathjax = root.resolve() / "book" / "assets" / "mathjax" / "tex-chtml.js"
    exporter = HTMLExporter(raw_template=_TEMPLATE, exclude_input_prompt=True, exclude_output_prompt=True)
    body, _ = exporter.from_notebook_node(
        notebook, resources={"metadata": {"name": title}, "mathjax": mathjax.as_uri()}
    )
    return body
