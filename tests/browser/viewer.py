"""A viewer that opens the page in a browser and records everything that goes wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

PATIENCE_MS = 60_000
PICTURES = "TIRESIAS_PICTURES"
"""The environment variable with a folder; if it is set, screenshots are saved there."""


@contextmanager
def looking(browser: Browser, url: str, but: str = "", **how: Any) -> Iterator[Page]:
    """Open a page and wait for its first state; raise ``AssertionError`` at the end if any request
    was refused, failed or went to another host, or a message popped up, except those that contain
    the words of ``but``."""
    wrong: list[str] = []

    def dismissed(dialog: Dialog) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda said: wrong.extend([said.text] if said.type == "error" else []))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda ask: wrong.extend([] if ask.url.startswith(url) else [ask.url]))
        page.on("dialog", dismissed)
        page.goto(url)
        page.locator("#sums dd").first.wait_for(state="attached")
        yield page
        unexpected = [what for what in wrong if not but or but not in what]
        assert not unexpected, unexpected
    finally:
        context.close()


def picture(page: Page, name: str) -> None:
    """Take a screenshot if a folder for them is set."""
    if folder := os.environ.get(PICTURES):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
