"""How the random kills compare the ledger's runs with those of accounting."""

from __future__ import annotations

from pathlib import Path

from scripts.testbed.busy_load import REQUEUED, Job, Told, service_that_differs
from slurm_tiresias.slurm.protocol import AccountedRun
from slurm_tiresias.store.records import RunRecord

JOB = Job("7", work_s=2.0, own_nodes="", journal=Path("journal"))
LATER_ROW = AccountedRun("7", 130.0, 139.0, 9.0, 4, "COMPLETED", submit_s=112.0)
LATER_RUN = RunRecord("7", 130.0, 139.0, 9.0, 4, confirmed=True)


def differences(row: AccountedRun, *kept: RunRecord) -> list[str]:
    told = Told(JOB, [row, LATER_ROW], [*kept, LATER_RUN], restarts=1, preemptions=1, lines=[])
    return list(service_that_differs(told))


def run(start_s: float, end_s: float, *, confirmed: bool = True) -> RunRecord:
    return RunRecord("7", start_s, end_s, end_s - start_s, 4, confirmed)


def test_a_run_of_which_accounting_has_the_end_only_is_not_compared_by_its_start() -> None:
    startless = AccountedRun("7", None, 112.0, 0.0, 4, REQUEUED, submit_s=100.0)
    for end_s in (112.0, 109.5):  # the controller saw its end, or knows only when it last ran
        for confirmed in (False, True):
            assert differences(startless, run(108.0, end_s, confirmed=confirmed)) == []


def test_a_run_that_no_row_of_accounting_covers_is_a_difference() -> None:
    startless = AccountedRun("7", None, 112.0, 0.0, 4, REQUEUED, submit_s=100.0)
    assert differences(startless, run(90.0, 95.0))
    assert differences(startless, run(114.0, 117.0))
    assert differences(startless, run(101.0, 104.0), run(108.0, 112.0)), "one row, one run"


def test_a_run_with_another_start_or_length_than_in_accounting_is_a_difference() -> None:
    row = AccountedRun("7", 108.0, 112.0, 4.0, 4, REQUEUED, submit_s=100.0)
    assert differences(row, run(108.0, 112.0)) == []
    assert differences(row, run(105.0, 112.0))
    assert differences(row, run(108.0, 115.0))
    assert differences(row)
