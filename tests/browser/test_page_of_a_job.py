"""A job's own page: what ``explain`` and ``history`` say of it, in a browser."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.testbed.ports import free_port
from slurm_tiresias.model import Protection
from slurm_tiresias.status.published import Blocker
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, RunRecord
from slurm_tiresias.web.http import Listener
from slurm_tiresias.web.page.page import Page
from tests.browser.viewer import looking, picture
from tests.cli.states import running, state, waiting
from tests.controller.test_life import job as remembered

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_says_until_when_the_job_waits_who_comes_first_and_all_that_happened(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    now_s = time.time()
    ledger = tmp_path / "ledger.sqlite"
    with closing(Ledger(ledger)) as writer, writer.transaction():
        writer.save_jobs([remembered("2", "alice")])
        ran = RunRecord("2", now_s - 900, now_s - 600, 300.0, 8, True)
        writer.save_runs([ran])
        event = EventRecord(now_s - 601, "preempted", "2", "3", "restart 1")
        writer.add_events([event])
    blockers = (
        Blocker("3", Protection.SAME_TIER.value, None),
        Blocker("4", Protection.MIN_RUN.value, now_s + 3000),
    )
    told = state(
        waiting("1", rank=0, gpus=1),
        waiting("2", rank=1, gpus=7, blockers=blockers, preemptions=1),
        running("3", attained_gpu_s=2400.0, user="bob"),
        running("4", user="carol", tier=1),
        at_s=now_s,
        output_appended=False,
    )
    page = Page(private=False)
    page.show(told, ledger)
    port = free_port()
    with (
        Listener(f"127.0.0.1:{port}", {}, page.answer).open(),
        looking(browser, f"http://127.0.0.1:{port}/", color_scheme=scheme) as tab,
    ):
        tab.locator("#jobs-table a[href='#/jobs/2']").click()
        tab.locator("#job-body h3", has_text="What happened to it").wait_for()
        said = tab.locator("#job-body").inner_text()
        assert "1 waiting job comes before it, and asks for 1 GPU." in said
        assert "An estimate: in about" in said
        assert "by preempting job 3 of bob, job 4 of carol. Sooner if jobs end" in said
        assert "When it starts again its output files are truncated" in said
        assert "to go" in said
        happened = tab.locator("#job-body ol li .kind").all_inner_texts()
        assert happened == ["stopped", "preempted", "started", "submitted"]
        picture(tab, f"job-{scheme}")
