"""The page of one job in a browser, with the content of ``explain`` and ``history``."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scripts.testbed.ports import free_port
from slurm_tiresias.model import Protection
from slurm_tiresias.status.published import Blocker, PublishedStart
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, PreemptionCost, RunRecord
from slurm_tiresias.web.http import Listener
from slurm_tiresias.web.page.page import Page
from tests.browser.viewer import looking, picture
from tests.cli.states import running, state, waiting
from tests.controller.test_life import job as remembered

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_job_shows_its_expected_start_the_jobs_ahead_and_its_history(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    now_s = time.time()
    ledger = tmp_path / "ledger.sqlite"
    with closing(Ledger(ledger)) as writer, writer.transaction():
        writer.jobs.put([remembered("2", "alice")])
        runs = [RunRecord("2", now_s - ago_s, now_s - 600, 300.0, 8, True) for ago_s in (1400, 900)]
        writer.runs.put(runs)
        cost = PreemptionCost("2", now_s - 1400, 0, now_s - 1100, now_s - 1101, 8, "reports")
        parts: dict[str, Any] = {"save_s": 4.0, "leave_s": 2.0, "again_s": 0.0, "restart_s": 94.0}
        saved = replace(cost, **parts, answered_s=6.25, resumed_step=40, steps_again=0)
        writer.costs.put([saved, replace(cost, run_start_s=now_s - 900, source="silent")])
        event = EventRecord(now_s - 601, "preempted", "2", "3", "restart 1")
        writer.events.put([event])
    blockers = (
        Blocker("3", Protection.NEAR_TIER.value, None),
        Blocker("4", Protection.MIN_RUN.value, now_s + 3000),
    )
    least_s, quarter_s, likely_s, half_s, most_s = (now_s + 600.0 * n for n in (1, 2, 3, 4, 9))
    start = PublishedStart(
        *(now_s, 7.0, now_s + 86_400.0), least_s, quarter_s, likely_s, half_s, most_s
    )
    told = state(
        waiting("1", rank=0, gpus=1),
        waiting("2", rank=1, gpus=7, blockers=blockers, preemptions=1, start=start),
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
        lost = tab.locator("#sums > div", has_text="Lost to preemptions, 24 h").locator("dd")
        assert lost.inner_text() == "0.22 GPU-h 1 preemption, 1 more unknown"
        picture(tab, f"cluster-{scheme}")
        tab.set_viewport_size({"width": 400, "height": 800})
        # A function, because an expression would be evaluated later, which the page forbids.
        tab.wait_for_function("() => document.documentElement.scrollWidth === 400")
        picture(tab, f"cluster-narrow-{scheme}")
        tab.set_viewport_size({"width": 1280, "height": 900})
        tab.locator("#jobs-table a[href='#/jobs/2']").click()
        tab.locator("#job-body h3", has_text="What happened to it").wait_for()
        said = tab.locator("#job-body").inner_text()
        assert "1 waiting job comes before it, and asks for 1 GPU." in said
        assert tab.locator("#job-body .beside a[href='#/jobs/4']").count() == 1
        assert re.search(
            r"Starts in about 30 min \(10 min to 1 h 30 min, nine times out of ten\)", said
        )
        assert "When it restarts its output files are truncated" in said
        assert "to go" in said
        costs = tab.locator("section", has_text="What its preemptions cost").locator("li")
        first, second = costs.all_inner_texts()
        assert first.startswith("Run 1: It saved within 6.2s of being asked, and was gone 2.0s")
        assert first.endswith("1m40s on 8 GPUs, 0.22 GPU-h.")
        assert second == "Run 2: What it cost is not known: the job does not report its steps."
        happened = tab.locator("#job-body ol li .kind").all_inner_texts()
        assert happened == ["stopped", "stopped", "preempted", "started", "started", "submitted"]
        picture(tab, f"job-{scheme}")
