"""Debian's Chromium, headless and without network access."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser with a fresh profile, for all tests that want it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pip install 'slurm-tiresias[browser]'"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=OPTIONS)
        yield browser
        browser.close()
