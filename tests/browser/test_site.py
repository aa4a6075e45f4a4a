"""The documentation as a site, in a browser without a network: search, phones, both themes."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from scripts.testbed.ports import free_port
from scripts.tools.docs.main import build
from tests.browser.viewer import picture

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:.*MystReferenceResolver")]

PHONE_PX = 400
SETTING = "promote_knob"
RESULTS = "#search-results li a"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    build(folder)
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The address of the site on a server of this machine."""
    address = ("127.0.0.1", free_port())
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(address, handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def reading(browser: Browser, base: str, **how: Any) -> Iterator[Tab]:
    """A tab for the pages below this address; it may ask no other address for anything."""
    foreign: list[str] = []
    context = browser.new_context(base_url=base, **how)
    try:
        tab = context.new_page()

        def only_the_site(route: Any) -> None:
            if route.request.url.startswith((base, "data:")):
                route.continue_()
            else:
                foreign.append(route.request.url)
                route.abort()

        tab.route("**/*", only_the_site)
        yield tab
        assert not foreign
    finally:
        context.close()


def test_the_start_page_leads_to_the_contents(browser: Browser, served: str) -> None:
    with reading(browser, served) as tab:
        tab.goto(f"{served}/index.html")
        tab.wait_for_url("**/docs/README.html")


def test_the_search_finds_a_setting_in_its_reference_first(browser: Browser, served: str) -> None:
    with reading(browser, served) as tab:
        tab.goto(f"{served}/docs/README.html")
        tab.fill("input[name=q]", SETTING)
        tab.keyboard.press("Enter")
        first = tab.locator(RESULTS).first
        first.wait_for()
        tab.locator("#search-results .context", has_text=SETTING).first.wait_for()
        picture(tab, "site-search")
        first.click()
        tab.wait_for_url("**/docs/reference/config.html*")
        assert SETTING in tab.locator("article").inner_text()


def test_the_search_works_on_files_without_a_server(browser: Browser, site: Path) -> None:
    with reading(browser, site.as_uri()) as tab:
        tab.goto(f"{site.as_uri()}/search.html?q={SETTING}")
        tab.locator(f"{RESULTS}[href*='docs/reference/config.html']").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways_on_a_phone(
    browser: Browser, site: Path, served: str, scheme: Literal["light", "dark"]
) -> None:
    view = {"width": PHONE_PX, "height": 800}
    with reading(browser, served, viewport=view, color_scheme=scheme) as tab:
        for page in sorted(site.rglob("*.html")):
            name = page.relative_to(site)
            if str(name) != "index.html":
                tab.goto(f"{served}/{name}")
                wide = tab.evaluate("document.documentElement.scrollWidth")
                assert wide <= PHONE_PX, name
        tab.goto(f"{served}/docs/reference/config.html")
        assert tab.evaluate(
            "[...document.querySelectorAll('table')].every(one => one.closest('.table-wrapper'))"
        )
        picture(tab, f"site-phone-{scheme}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_has_a_light_and_a_dark_theme(
    browser: Browser, served: str, scheme: Literal["light", "dark"]
) -> None:
    view = {"width": 1280, "height": 900}
    with reading(browser, served, viewport=view, color_scheme=scheme) as tab:
        tab.goto(f"{served}/README.html")
        colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in colour[4:-1].split(",")) / 3
        assert brightness > 200 if scheme == "light" else brightness < 60
        # A picture that is drawn for both themes shows the one for this theme.
        for image in tab.locator(f"img.only-{scheme}").all():
            assert image.is_visible()
            assert image.evaluate("image => image.naturalWidth") > 0
        picture(tab, f"site-{scheme}")
