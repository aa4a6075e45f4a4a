"""Which pages the site has, in which order, and how their pictures are included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import ROOT
from scripts.tools.docs.pages import page

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CONTENTS = "docs/README"
"""The page with the contents: the first one of the site."""

GROUPS = {
    "Tutorials": ("docs/tutorial/*.md",),
    "How-to guides": ("docs/how-to/*.md", "examples/README.md"),
    "Reference": ("docs/reference/*.md",),
    "Explanation": ("docs/explanation/*.md",),
    "Records of measurements": ("scripts/records/*.md",),
    "Project": ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"),
}
"""The captions of the navigation, and the pages below each."""

PATTERNS = (f"{CONTENTS}.md", *(pattern for patterns in GROUPS.values() for pattern in patterns))

_PICTURE = re.compile(r"<picture>(.*?)</picture>", re.DOTALL)
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_START_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={page}">
<title>slurm-tiresias</title>
<a href="{page}">The documentation of slurm-tiresias</a>
</html>
"""


def prepare(_app: Sphinx, name: str, source: list[str]) -> None:
    """Change the text of a page before Sphinx parses it."""
    source[0] = with_both_themes(source[0])
    if name == CONTENTS:
        source[0] += "\n" + "\n".join(_navigation())


def with_both_themes(text: str) -> str:
    """Turn each ``<picture>`` into two images, of which the site's own switch shows one.

    The element itself follows the operating system's theme, which a reader of the site can change.
    """
    return _PICTURE.sub(_two_images, text)


def write_start_page(app: Sphinx, failure: Exception | None) -> None:
    """Lead readers from the folder itself to the contents."""
    if failure is None:
        Path(app.outdir, "index.html").write_text(_START_PAGE.format(page=f"{CONTENTS}.html"))


def navigation() -> dict[str, list[str]]:
    """Return the pages below each caption, in the order in which the contents mention them."""
    contents = page(f"{CONTENTS}.md")
    paths = [target.partition("#")[0] for _, target in contents.links()]
    mentioned = [(contents.folder / path).resolve() for path in paths if path]
    order = {path: number for number, path in reversed(list(enumerate(mentioned)))}

    def position(path: Path) -> tuple[int, Path]:
        return order.get(path, len(order)), path

    groups = {}
    for caption, patterns in GROUPS.items():
        found = [path for pattern in patterns for path in ROOT.glob(pattern)]
        if caption != "Project":
            found.sort(key=position)
        if found:
            groups[caption] = [str(path.relative_to(ROOT)) for path in found]
    return groups


def _navigation() -> Iterator[str]:
    for caption, names in navigation().items():
        yield f"```{{toctree}}\n:hidden:\n:caption: {caption}\n"
        yield from (f"/{name.removesuffix('.md')}" for name in names)
        yield "```\n"


def _two_images(picture: re.Match[str]) -> str:
    tags = [dict(_ATTRIBUTE.findall(tag)) for tag in re.findall(r"<[^>]*>", picture[1])]
    (dark,) = (tag["srcset"] for tag in tags if "srcset" in tag)
    (image,) = (tag for tag in tags if "src" in tag)
    return "".join(
        f"\n```{{image}} {path}\n:alt: {image['alt']}\n:class: only-{theme}\n```\n"
        for path, theme in ((image["src"], "light"), (dark, "dark"))
    )
