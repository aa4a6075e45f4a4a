"""Somebody who looks at the page, and notices everything that goes wrong on it."""

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
"""Where this names a folder, pictures of the page are put there."""


@contextmanager
def looking(browser: Browser, url: str, but: str = "", **how: Any) -> Iterator[Page]:
    """A page that is open and shows its first state; ``AssertionError`` at the end if anything was
    refused, failed, asked of another host, or popped up, ``but`` what has these words in it."""
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
    """Take one, if anybody wants pictures."""
    if folder := os.environ.get(PICTURES):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
