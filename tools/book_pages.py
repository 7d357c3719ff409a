"""What the pages need that jupyter-book does not do: a small Sphinx extension.

What a cell prints in a row stands in one block; figures are set into the page, where they follow
its theme (see helpers/svg.py); each page gets the description that search engines and link previews
show, its first paragraph; and the theme's page is made lighter (templates/layout.html).
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

from helpers.svg import to_page

TEMPLATES = Path(__file__).with_name("templates")
# 1.5 MB that draw each icon as SVG (the stylesheet draws the same icons from a font), and the wish
# to have other scripts early, before the stylesheets that the text waits for.
IN_THE_WAY = re.compile(
    r"<!-- So that users can add custom icons -->|<!-- Pre-loaded scripts[^>]*-->"
    r"|<script[^>]*/fontawesome\.js[^>]*></script>"
    r'|<link rel="preload" as="script"[^>]*>'
)
# The theme's notes for a search as you type and a choice of versions, which the book has not; they
# would have to run before the scripts that follow.
OPTIONS_SCRIPT = re.compile(r"<script>DOCUMENTATION_OPTIONS\.[^<]*</script>")
DESCRIPTION_LENGTH = 155  # characters; search engines cut longer ones


class JoinPrints(SphinxTransform):
    """Make one block of what a cell prints in a row.

    Where a notebook breaks it is a matter of timing. (myst-nb's own way to join also moves it
    above the figure that it follows.)
    """

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Look at every block of one page."""
        for block in list(self.document.findall(is_print)):
            place = block.parent.index(block)
            before = block.parent[place - 1] if place else None
            if is_print(before) and before["classes"] == block["classes"]:
                before.rawsource = before.astext() + block.astext()
                before[:] = [nodes.Text(before.rawsource)]
                block.parent.remove(block)


def is_print(node: nodes.Node | None) -> bool:
    """Return whether a node is what a cell printed."""
    return isinstance(node, nodes.literal_block) and "stream" in node["classes"]


class SetFiguresIntoThePage(SphinxPostTransform):
    """Replace each SVG image by its drawing."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Look at every image of one page."""
        for number, image in enumerate(list(self.document.findall(nodes.image)), start=1):
            path = self.file_of(image)
            if path is None or path.suffix != ".svg":
                continue
            name = f"{Path(self.env.docname).name}-{number}"
            try:
                drawing = to_page(path.read_text(), name=name, alt=image.get("alt", ""))
            except ValueError as problem:
                raise ValueError(f"{self.env.docname}: {problem}") from None
            image.replace_self(nodes.raw("", drawing, format="html"))

    def file_of(self, image: nodes.image) -> Path | None:
        """Return the image's file; None for one that lies elsewhere."""
        uri = image["uri"]
        return None if re.match(r"[a-z]+:", uri) else Path(self.env.srcdir, uri)


def add_description(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give a page ``<meta name="description">``: the beginning of its first paragraph."""
    if doctree is None:
        return
    first = next((p.astext() for p in doctree.findall(nodes.paragraph) if p.astext()), "")
    text = " ".join(first.split())
    if not text:
        return
    if len(text) > DESCRIPTION_LENGTH:
        text = text[:DESCRIPTION_LENGTH].rsplit(" ", 1)[0] + " ..."
    tag = f'<meta name="description" content="{html.escape(text, quote=True)}">'
    context["metatags"] = f"{context.get('metatags', '')}\n{tag}"


def lighten_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give templates/layout.html what it changes the theme's HTML with."""
    context["stylesheets_first"] = lambda head: IN_THE_WAY.sub("", head)
    context["deferred"] = defer_scripts


def defer_scripts(head: str) -> str:
    """Let the text show before the scripts have come."""
    return re.sub(r"<script(?=[^>]* src=)", "<script defer", OPTIONS_SCRIPT.sub("", head))


MENDED = {
    # ARIA roles that docutils writes into a list of sources and ARIA has given up
    ' role="doc-biblioentry"': "",
    '<div role="list" class="citation-list">': '<div class="citation-list">',
    # sphinx-exercise gives every exercise of a page the same two ids
    '<section id="exercise-content">': "<section>",
    '<section id="solution-content">': "<section>",
}


def mend_markup(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put right what the libraries write into a page that no page should have."""
    for wrong, right in MENDED.items():
        context["body"] = context.get("body", "").replace(wrong, right)


def add_templates(app: Sphinx, config: Config) -> None:
    config.templates_path = [str(TEMPLATES), *config.templates_path]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(JoinPrints)
    app.add_post_transform(SetFiguresIntoThePage)
    app.connect("config-inited", add_templates)
    app.connect("html-page-context", add_description)
    app.connect("html-page-context", lighten_page)
    app.connect("html-page-context", mend_markup)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
