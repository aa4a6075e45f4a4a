"""Photographs of the live page in both themes, while jobs like the demo's run."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from scripts.testbed.ports import free_port
from scripts.testbed.real_cluster import short_folder
from scripts.tools.demo import main as demo
from scripts.tools.demo.jobs import run_all
from scripts.tools.demo.mix import make_jobs, setting

PAGE = {"width": 1200, "height": 770}
HEIGHTS = {"page": PAGE["height"], "jobs": 425}
"""How much is shown of the top of the page, and of its table of jobs."""
SEED = 5
SETTLE_MS = 3000
WARM_UP_S = 45.0
"""The queue grows and jobs are preempted for so long before the picture is taken."""
NAMES = ("gpt-1.3b", "resnet50", "llama-ft", "bert-base", "vit-large", "eval", "moe-8x", "debug")


def photographs() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the PNG of each picture."""
    if shutil.which("chromium") is None:
        raise click.ClickException("There is no Chromium. Run apt-get install chromium.")
    listen = f"127.0.0.1:{free_port()}"
    with short_folder() as folder:
        where = folder / "demo"
        demo.prepare(where)
        run = demo.three_runs(where)[-1]
        try:
            demo.start(run, setting(SEED), {"http": {"listen": listen}})
            mix = [
                replace(job, name=f"{NAMES[number % len(NAMES)]}-{number}")
                for number, job in enumerate(make_jobs(SEED), 1)
            ]
            for _ in run_all([run], mix):
                if run.samples[-1].at_s > WARM_UP_S:
                    break
            for theme in ("light", "dark"):
                for name, image in _photographs_of(f"http://{listen}/", theme):
                    yield f"{name}-{theme}.png", _small(image, HEIGHTS[name])
        finally:
            demo.stop(where)


def _photographs_of(address: str, theme: str) -> Iterator[tuple[str, bytes]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        how: dict[str, Any] = {"viewport": PAGE, "color_scheme": theme}
        tab = browser.new_context(**how).new_page()
        tab.goto(address)
        tab.locator("#jobs-table a").first.wait_for()
        tab.wait_for_timeout(SETTLE_MS)
        yield "page", tab.screenshot()
        tab.locator("#jobs").scroll_into_view_if_needed()
        _sort_by_waiting_time(tab)
        tab.wait_for_timeout(SETTLE_MS)
        yield "jobs", tab.locator("#jobs").screenshot()
        browser.close()


def _sort_by_waiting_time(tab: Any) -> None:
    """Put jobs with long waits first, so that the reasons why they wait are in the picture."""
    for _ in range(2):
        tab.locator("#jobs-table").get_by_role("button", name="Waited").click()
        if tab.locator("#jobs-table th[aria-sort=descending]").count():
            return


def _small(image: bytes, height: int) -> bytes:
    """Return the top of a picture, with a palette of 256 colours, which suffices for a page."""
    from PIL import Image

    out = io.BytesIO()
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    picture = picture.crop((0, 0, min(PAGE["width"], picture.width), height))
    picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return out.getvalue()
