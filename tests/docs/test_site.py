"""The site that scripts/dev docs builds: every page, and nothing from the network."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from scripts import ROOT
from scripts.tools.docs.main import build
from scripts.tools.docs.pages import pages
from scripts.tools.docs.site.pages import CONTENTS, GROUPS, navigation, with_both_themes

pytestmark = pytest.mark.filterwarnings("ignore:.*MystReferenceResolver")

LOADED = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href|srcset)=["']?(?:https?:)?//[^>]*>"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    build(folder)
    return folder


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    names = {one.name for one in pages()}
    assert {name for names in navigation().values() for name in names} == names - {f"{CONTENTS}.md"}
    contents = (site / f"{CONTENTS}.html").read_text()
    for name in names:
        html = name.removesuffix(".md") + ".html"
        assert (site / html).exists()
    for caption in navigation():
        assert f'<span class="caption-text">{caption}</span>' in contents
    assert f"{CONTENTS}.html" in (site / "index.html").read_text()


def test_the_navigation_follows_the_order_of_the_contents() -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / f"{CONTENTS}.md").read_text())
    for caption, names in navigation().items():
        paths = [name.removeprefix("docs/") for name in names]
        places = [links.index(path) for path in paths if path in links]
        assert caption == "Project" or places == sorted(places), caption


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not LOADED.search(page.read_text()), page
    for style in site.rglob("*.css"):
        text = style.read_text()
        assert not re.search(r"@import|url\([\"']?(https?:)?//", text), style


def test_a_dead_link_fails_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    (source / "docs" / "README.md").write_text("# Contents\n\n[a page](how-to/missing.md)\n")
    with pytest.raises(SystemExit):
        build(tmp_path / "site", source)
    assert "missing.md" in capfd.readouterr().err


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(click.ClickException, match="holds other files"):
        build(tmp_path)


def test_a_picture_for_both_themes_becomes_one_image_for_each() -> None:
    picture = (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/a-dark.svg">\n'
        '  <img alt="A cycle" src="images/a-light.svg">\n</picture>'
    )
    text = with_both_themes(f"Before.\n\n{picture}\n\nAfter.\n")
    assert "{image} images/a-light.svg\n:alt: A cycle\n:class: only-light" in text
    assert "{image} images/a-dark.svg\n:alt: A cycle\n:class: only-dark" in text
    assert "<picture>" not in text


def test_groups_of_the_navigation_are_the_purposes_of_pages() -> None:
    folders = {path.name for path in (ROOT / "docs").iterdir() if any(path.glob("*.md"))}
    patterns = {pattern for patterns in GROUPS.values() for pattern in patterns}
    assert {f"docs/{name}/*.md" for name in folders} <= patterns
