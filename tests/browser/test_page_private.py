"""The live page in a browser, on a cluster that keeps jobs private."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.testbed.ports import free_port
from slurm_tiresias.web.http import Listener
from slurm_tiresias.web.page.page import Page
from tests.browser.viewer import looking, picture
from tests.cli.states import NOW_S
from tests.controller.pages import NAMES, USERS, cluster, ledger_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long


def test_with_private_jobs_the_page_shows_nodes_and_tiers(browser: Browser, tmp_path: Path) -> None:
    page = Page(private=True)
    page.show(cluster(16, 60, 6, at_s=NOW_S), ledger_of(tmp_path, 50, 6, at_s=NOW_S))
    listen = f"127.0.0.1:{free_port()}"
    with Listener(listen, {}, page.answer).open(), looking(browser, f"http://{listen}/") as tab:
        tab.get_by_text("Jobs are private on this cluster").wait_for()
        tab.locator("#nodes-map").focus()
        said = tab.locator("#nodes-current").inner_text()
        assert "jobs " in said and "tier" not in said
        for part in ("#decisions", "#reasons", "#jobs", "#lanes-canvas"):
            assert tab.locator(part).is_hidden(), part
        text = tab.locator("body").inner_text()
        assert not [word for word in (*USERS, *NAMES, "No job waits") if word in text]
        picture(tab, "private")
