"""Of the theme's icons, keep those that the pages show: a small Sphinx extension.

The theme brings Font Awesome whole: 1,881 icons in its stylesheet and in fonts of 300 kB, which
every reader's browser would fetch before it shows a page. The book shows about thirty.
"""

from __future__ import annotations

import re
from pathlib import Path

from fontTools import subset
from sphinx.application import Sphinx

STYLES = "_static/styles/pydata-sphinx-theme.css"
FONTS = "_static/vendor/fontawesome/webfonts"
# .fa-house:before,.fa-home:before{content:"\f015"}
ICON_RULE = re.compile(r'(?<=\})(?:\.fa-[\w-]+:before,?)+\{content:"[^"]*"\}')
ICON_NAME = re.compile(r"fa-[\w-]+")
# Written as "\f015" or as the character itself: icons live in Unicode's area for private use.
CODE, CHARACTER = re.compile(r'"\\([0-9a-f]{2,4})"'), re.compile("[\ue000-\uf8ff]")
# the files that a face offers, one after the other
SOURCES = re.compile(r"src:url\(([^)]*?)([\w-]+)\.woff2\)[^;}]*")


def keep_used_icons(app: Sphinx, problem: Exception | None) -> None:
    """Cut the theme's stylesheet and fonts down to the icons of the pages that were built."""
    styles = Path(app.outdir, STYLES)
    if problem or app.builder.format != "html" or not styles.is_file():
        return
    Path(app.outdir, "_static/scripts/fontawesome.js").unlink(missing_ok=True)  # no page asks
    names = set(ICON_NAME.findall(text_of(app.outdir, "*.html") + text_of(app.outdir, "*.js")))
    css = without_unused(styles.read_text(), names)
    styles.write_text(SOURCES.sub(r'src:url(\1\2.woff) format("woff")', css))
    characters = characters_in(text_of(app.outdir, "*.css"))
    for font in sorted(Path(app.outdir, FONTS).glob("*.ttf")):
        write_subset(font, characters)
        font.with_suffix(".woff2").unlink()
        font.unlink()


def text_of(folder: str | Path, pattern: str) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in Path(folder).rglob(pattern))


def characters_in(css: str) -> set[int]:
    """Return the icons that style sheets draw, as Unicode numbers."""
    return {int(code, 16) for code in CODE.findall(css)} | set(map(ord, CHARACTER.findall(css)))


def without_unused(css: str, names: set[str]) -> str:
    """Return a stylesheet without the rules of icons that have none of these names."""
    return ICON_RULE.sub(
        lambda rule: rule[0] if names & set(ICON_NAME.findall(rule[0])) else "", css
    )


def write_subset(font: Path, characters: set[int]) -> None:
    """Write these characters of a font beside it, as .woff, which needs no further package."""
    options = subset.Options(flavor="woff", recalc_timestamp=False)
    loaded = subset.load_font(str(font), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=characters)
    subsetter.subset(loaded)
    subset.save_font(loaded, str(font.with_suffix(".woff")), options)


def setup(app: Sphinx) -> dict[str, object]:
    app.connect("build-finished", keep_used_icons)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
