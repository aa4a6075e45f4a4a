"""The live page of a controller that does not act: what Slurm does, and what the controller would
do."""

from __future__ import annotations

import re
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.testbed.ports import free_port
from slurm_tiresias.model import EventRecord
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.web.http import Listener
from slurm_tiresias.web.page.page import Page
from tests.browser.viewer import looking, picture
from tests.cli.states import busy_state, not_acting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

FICTION = re.compile(
    r"it starts|is being preempted|is to start|(?<!would )leaves? |has to leave|comes back"
)


def test_the_page_does_not_show_shadow_actions_as_done(browser: Browser, tmp_path: Path) -> None:
    now_s = time.time()
    with closing(Ledger(tmp_path / "ledger.sqlite")):
        pass
    events = (EventRecord(now_s - 4, "would", "40655", "40731", "be preempted"),)
    page = Page(private=False)
    page.show(not_acting(busy_state(at_s=now_s, events=events)), tmp_path / "ledger.sqlite")
    port = free_port()
    with (
        Listener(f"127.0.0.1:{port}", {}, page.answer).open(),
        looking(browser, f"http://127.0.0.1:{port}/") as tab,
    ):
        tab.locator("#jobs-table a[href='#/jobs/40731']").wait_for()
        assert "GPU jobs by Slurm alone (shadow)" in tab.locator("#about").inner_text()
        jobs = tab.locator("#jobs-table").inner_text()
        assert "Priority; would start now; would preempt 40655" in jobs
        assert "gpu02; would be preempted for 40731" in jobs
        decided = tab.locator("#decisions").inner_text()
        assert "job 40655 would be preempted" in decided
        assert "would have job 40655: been preempted for job 40731" in decided
        reasons = tab.locator("#reasons-table").inner_text()
        assert "Priority\nSlurm tries others before it" in reasons
        assert "would wait: no room" in reasons
        assert not FICTION.search(tab.locator("#overview").inner_text())
        picture(tab, "shadow")

        tab.locator("#jobs-table a[href='#/jobs/40731']").click()
        tab.locator("#job-body h3", has_text="What Slurm does").wait_for()
        job = tab.locator("#job-body").inner_text()
        assert "It waits: Priority (Slurm tries others before it)." in job
        assert "The controller runs in shadow mode" in job
        assert "It would preempt job 40655 of jsmith." in job
        assert not FICTION.search(job)
        picture(tab, "shadow-job")
