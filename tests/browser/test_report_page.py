"""The page of a report in a browser: light and dark, wide and narrow, with hostile names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.browser.viewer import picture
from tests.cli.running import Site
from tests.cli.states import NOW_S
from tests.cli.test_report import HOSTILE, fill, told

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.long

READABLE = 4.5
"""The contrast of text that WCAG requires (level AA)."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr("time.time", lambda: NOW_S)
    return Site(tmp_path)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_report_page_is_self_contained_safe_and_readable(
    browser: Browser, site: Site, scheme: Literal["light", "dark"], width: int
) -> None:
    fill(site, user=HOSTILE, name=HOSTILE)
    page = site.folder / "report.html"
    told(site, "--html", str(page))
    wrong: list[str] = []
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, offline=True
    )
    tab = context.new_page()
    tab.on("console", lambda said: wrong.append(said.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda ask: wrong.extend([] if ask.url == page.as_uri() else [ask.url]))
    tab.on("dialog", lambda dialog: wrong.append(dialog.message))
    tab.goto(page.as_uri())
    assert tab.locator("figure svg").count() == 4
    assert "alert(1)" in tab.locator("main").inner_text(), "a name is shown as it is"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    assert contrast(tab, "body") >= READABLE and contrast(tab, "figcaption") >= READABLE
    picture(tab, f"report-{scheme}-{width}")
    context.close()
    assert not wrong, wrong


def contrast(tab: Page, selector: str) -> float:
    """Return the contrast of the first such element's text with the page."""

    def colour(element: str, name: str) -> str:
        shown = f"getComputedStyle(document.querySelector('{element}')).{name}"
        return str(tab.evaluate(shown))

    text, paper = _light(colour(selector, "color")), _light(colour("body", "backgroundColor"))
    return (max(text, paper) + 0.05) / (min(text, paper) + 0.05)


def _light(colour: str) -> float:
    """The relative luminance of ``rgb(1, 2, 3)``, as defined by WCAG."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(part * share for part, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))
