"""The page formats GPU time, and folds arrays, like the commands do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.testbed.ports import free_port
from slurm_tiresias.explanation.folded import folded
from slurm_tiresias.gpu_hours import exact_gpu_hours, gpu_hours
from slurm_tiresias.web.http import Listener
from slurm_tiresias.web.page.page import Page
from slurm_tiresias.web.page.payload import OF_JOB
from tests.browser.viewer import looking
from tests.cli.states import NOW_S, running, state, waiting
from tests.test_gpu_hours import WRITTEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

LIMITS = (0.5, 36, 3200, 3600, 5400, 18_000, 100_000, 2_250_000, 36_000_000)
IN_THE_PAGE = """async ([used, limits]) => {
  const { gpuHours, exactGpuHours } = await import("/format.js");
  return [used.map(gpuHours), limits.map(exactGpuHours)];
}"""


FOLDED_IN_THE_PAGE = """async (jobs) => {
  const { folded } = await import("/arrays.js");
  const { rows, names } = folded(jobs, jobs.job_id.map((_, row) => row));
  return rows.map((row) => names.get(row) ?? jobs.job_id[row]);
}"""


def test_the_page_folds_arrays_as_status_does(browser: Browser, tmp_path: Path) -> None:
    jobs = [
        running("12_0"),
        *(waiting(f"12_{number}") for number in range(1, 500)),
        waiting("12_500", restarts=1, first_started_s=NOW_S, attained_gpu_s=9.0),
        waiting("12_501", reason="protected"),
        *(waiting(f"14_{number}") for number in range(0, 90, 2)),
        *(waiting("16+1"), waiting("16+2"), waiting("17")),
    ]
    page, port = Page(private=False), free_port()
    page.show(state(), tmp_path / "ledger.sqlite")
    told = {name: [getattr(job, name) for job in jobs] for name in OF_JOB}
    with (
        Listener(f"127.0.0.1:{port}", {}, page.answer).open(),
        looking(browser, f"http://127.0.0.1:{port}/") as tab,
    ):
        shown = tab.evaluate(FOLDED_IN_THE_PAGE, told)
    assert shown == [job.job_id for job, _ in folded(jobs)]


def test_the_page_writes_gpu_time_as_the_commands_do(browser: Browser, tmp_path: Path) -> None:
    page, port = Page(private=False), free_port()
    page.show(state(), tmp_path / "ledger.sqlite")
    with (
        Listener(f"127.0.0.1:{port}", {}, page.answer).open(),
        looking(browser, f"http://127.0.0.1:{port}/") as tab,
    ):
        used, limits = tab.evaluate(IN_THE_PAGE, [list(WRITTEN), list(LIMITS)])
    assert used == [gpu_hours(gpu_s) for gpu_s in WRITTEN]
    assert limits == [exact_gpu_hours(limit) for limit in LIMITS]
