"""The output of ``history``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from slurm_tiresias.cli import history
from slurm_tiresias.explanation.costs import cost_text
from slurm_tiresias.model import JobAccount
from slurm_tiresias.slurm.protocol import AccountedRun
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, PreemptionCost, RunProgressRecord, RunRecord
from tests.cli.running import Site, error_of
from tests.cli.states import NOW_S

SUBMITTED_S = NOW_S - 3600
HOSTILE = "\x1b[2J\u202e[bold]\nx"


def record(key: str = "12", **changes: object) -> JobAccount:
    settings: dict[str, object] = {
        "restarts": 0,
        "submitted_s": SUBMITTED_S,
        "tier_entered_s": SUBMITTED_S,
        "queued_s": SUBMITTED_S,
        "entry_number": 1,
        "user": "alice",
        "name": "train",
        **changes,
    }
    return JobAccount(key=key, **settings)  # type: ignore[arg-type]


def ran(start: float, end: float | None, *, key: str = "12", gpus: int = 4) -> RunRecord:
    """A run by its seconds since submission."""
    elapsed_s = (NOW_S - SUBMITTED_S if end is None else end) - start
    end_s = None if end is None else SUBMITTED_S + end
    return RunRecord(key, SUBMITTED_S + start, end_s, elapsed_s, gpus, end is not None)


def happened(at: float, kind: str, other: str = "", text: str = "") -> EventRecord:
    return EventRecord(SUBMITTED_S + at, kind, "12", other, text)


def remember(
    site: Site,
    *records: JobAccount,
    runs: Sequence[RunRecord] = (),
    events: Sequence[EventRecord] = (),
) -> None:
    with closing(Ledger(site.folder / "ledger.sqlite")) as ledger, ledger.transaction():
        ledger.jobs.put(records)
        ledger.runs.put(runs)
        ledger.events.put(events)


def told(site: Site, job_id: str = "12", *options: str) -> str:
    result = site.run("history", job_id, *options)
    assert result.exit_code == 0, result.output
    output: str = result.stdout
    return output


def accounted(
    start: float | None, end: float, state: str, exit_code: str = "0:0", by: int | None = None
) -> AccountedRun:
    """A row of Slurm's accounting, with times in seconds since submission."""
    start_s = None if start is None else SUBMITTED_S + start
    end_s = SUBMITTED_S + end
    return AccountedRun("12", start_s, end_s, 1.0, 4, state, SUBMITTED_S, exit_code, by)


@pytest.fixture(autouse=True)
def accounting(monkeypatch: pytest.MonkeyPatch) -> list[AccountedRun]:
    """Replace the answer of Slurm's accounting about job 12."""
    rows: list[AccountedRun] = []

    class Accounting:
        def runs(self, _keys: Sequence[str], _since_s: float) -> list[AccountedRun]:
            return rows

    monkeypatch.setattr(history, "driver", lambda _config: Accounting())
    return rows


def test_a_preempted_job_is_shown_run_by_run(site: Site, accounting: list[AccountedRun]) -> None:
    accounting += [accounted(60, 660, "REQUEUED"), accounted(1200, 3000, "COMPLETED")]
    remember(
        site,
        record(
            restarts=1, preemptions=1, first_started_s=SUBMITTED_S + 60, ended_s=SUBMITTED_S + 3000
        ),
        runs=[ran(60, 660), ran(1200, 3000)],
        events=[
            happened(61, "demoted", text="from tier 0 to tier 1"),
            happened(661, "preempted", other="15", text="restart 1"),
        ],
    )
    assert told(site) == (
        "Job 12 (train) of alice: completed.\n"
        "  Submitted Nov 14 21:13:20, first started Nov 14 21:14:20, after 1m00s, ended Nov 14 "
        "22:03:20, 50m00s after its submission.\n"
        "  It ran 40m00s in 2 runs, waited 10m00s in all and attained 2.6 GPU-h.\n"
        "  It was preempted once.\n"
        "\n"
        "RUN  WAITED  STARTED             RAN  GPUS    ATTAINED  ENDED\n"
        "  1   1m00s  Nov 14 21:14:20  10m00s     4  0.66 GPU-h  preempted by 15\n"
        "  2   9m00s  Nov 14 21:33:20  30m00s     4   2.0 GPU-h  completed\n"
        "\n"
        "What happened\n"
        "  - Nov 14 21:14:21: demoted from tier 0 to tier 1\n"
        "  - Nov 14 21:24:21: preempted by job 15 (restart 1)\n"
    )


def test_a_run_that_lost_no_step_had_saved_even_if_its_report_of_that_was_not_seen() -> None:
    cost = PreemptionCost("7", 0.0, 1, 90.0, 90.0, 4, "comment", leave_s=2.0)
    saved = cost_text(replace(cost, resumed_step=622, steps_again=0))
    assert saved.startswith("It was gone 2.0s after the request, with all its work saved.")
    assert "without having saved" in cost_text(replace(cost, resumed_step=622, steps_again=3))


SAVED: dict[str, Any] = {"save_s": 2.0, "leave_s": 1.25, "answered_s": 2.5, "restart_s": 14.0}
LOST: dict[str, Any] = {"save_s": 0.0, "leave_s": 30.0, "restart_s": 14.0, "lost_all": True}
COSTS: Sequence[tuple[str, dict[str, Any], str]] = (
    (
        "reports",
        {**SAVED, "again_s": 0.0, "resumed_step": 520, "steps_again": 0},
        "It saved within 2.5s of being asked, and was gone 1.2s later. No work had to be repeated. "
        "The next run took 14s to its first new step. Lost in all: 17s on 4 GPUs, 0.01 GPU-h.",
    ),
    (
        "reports",
        {**LOST, "again_s": 150.0, "resumed_step": 0, "steps_again": 620},
        "It was gone 30s after the request, without having saved. It saved nothing in this run, "
        "2m30s of work. The next run took 14s to its first new step. Lost in all: 3m14s on 4 GPUs,",
    ),
    (
        "output",
        {"save_s": 0.0, "again_s": 80.0, "resumed_step": 40, "steps_again": 1},
        "Whether it saved is not known. 1 step had to be repeated, 1m20s of work. What the restart "
        "took is not known. What it took to leave is not known. Lost in all, as far as known: 1m20",
    ),
    ("silent", {}, "What it cost is not known: the job does not report its steps."),
    (
        "folder",
        {"save_s": 0.0, "leave_s": 1.0, "again_s": 45.0},
        "It was gone 1.0s after the request, without having saved. 45s of work had to be repeated.",
    ),
)


def test_history_shows_the_known_and_unknown_costs_of_each_preemption(site: Site) -> None:
    starts = [300.0 * n for n in range(len(COSTS))]
    costs = [
        replace(
            PreemptionCost("12", SUBMITTED_S + at, n, SUBMITTED_S + at + 200, 0.0, 4, source),
            **parts,
        )
        for n, (at, (source, parts, _)) in enumerate(zip(starts, COSTS, strict=True))
    ]
    remember(
        site,
        record(restarts=4, preemptions=4, first_started_s=SUBMITTED_S),
        runs=[ran(start, start + 200) for start in starts[:-1]] + [ran(starts[-1], None)],
    )
    with closing(Ledger(site.folder / "ledger.sqlite")) as ledger, ledger.transaction():
        ledger.costs.put(costs)
    output = told(site)
    said = output[output.index("What its preemptions cost\n") :].splitlines()[1:]
    for number, (line, (_, _, begins)) in enumerate(zip(said, COSTS, strict=True), 1):
        assert line.startswith(f"  - Run {number}: {begins}")
    runs = json.loads(told(site, "12", "--json"))["runs"]
    assert [run["cost"]["source"] for run in runs] == [source for source, _, _ in COSTS]


def test_reports_of_a_run_after_its_recorded_end_belong_to_that_run(site: Site) -> None:
    """Accounting records the end of a requeued run when Slurm begins to end its processes, which
    may still save."""
    remember(site, record(restarts=1), runs=[ran(0, 600), ran(700, None)])
    late_s = SUBMITTED_S + 640
    late = RunProgressRecord("12", 0, "reports", "leaving", 0, 55, 100, late_s, late_s, 55, late_s)
    with closing(Ledger(site.folder / "ledger.sqlite")) as ledger, ledger.transaction():
        ledger.progress.put([late])
    runs = json.loads(told(site, "12", "--json"))["runs"]
    assert [run["progress"] and run["progress"]["saved_step"] for run in runs] == [55, None]


def test_a_job_that_waits_again_counts_its_waiting_until_now(site: Site) -> None:
    remember(
        site,
        record(restarts=1, tier=1, first_started_s=SUBMITTED_S),
        runs=[ran(0, 600)],
        events=[happened(600, "requeued", text="restart 1")],
    )
    output = told(site)
    assert output.startswith("Job 12 (train) of alice: waiting in tier 1.\n")
    assert "It ran 10m00s in 1 run, waited 50m00s in all" in output
    assert "requeued\n" in output


def test_pauses_of_the_controller_are_shown_with_their_user(site: Site) -> None:
    events = [
        EventRecord(SUBMITTED_S + 60, "paused", "", "", "by root (uid 0)"),
        EventRecord(SUBMITTED_S + 120, "resumed", "", "", "by root (uid 0)"),
    ]
    remember(site, record(), events=events)
    assert told(site).splitlines()[-2:] == [
        "  - Nov 14 21:14:20: the controller was paused by root (uid 0)",
        "  - Nov 14 21:15:20: the controller was resumed by root (uid 0)",
    ]


def test_a_running_job_is_shown_as_running(site: Site) -> None:
    remember(site, record(first_started_s=SUBMITTED_S), runs=[ran(0, None)])
    output = told(site)
    assert output.startswith("Job 12 (train) of alice: running in tier 0.\n")
    assert output.rstrip().endswith("runs")


def test_without_accounting_a_run_has_just_ended(site: Site) -> None:
    remember(site, record(first_started_s=SUBMITTED_S, ended_s=SUBMITTED_S + 9), runs=[ran(0, 9)])
    assert told(site).startswith("Job 12 (train) of alice: ended.\n")


def test_a_job_that_never_ran_is_shown_as_never_run(site: Site) -> None:
    remember(site, record(ended_s=SUBMITTED_S + 9))
    output = told(site)
    assert output.startswith("Job 12 (train) of alice: ended without having run.\n")
    assert "It never ran, and waited 9s.\n" in output


ROOT_UID, UNKNOWN_UID = 0, 4294967294


@pytest.mark.parametrize(
    ("state", "exit_code", "by", "said"),
    [
        ("COMPLETED", "0:0", None, "completed"),
        ("FAILED", "3:0", None, "failed with exit code 3"),
        ("FAILED", "0:9", None, "failed by signal 9"),
        ("TIMEOUT", "0:0", None, "timed out"),
        ("OUT_OF_MEMORY", "0:125", None, "out of memory"),
        ("NODE_FAIL", "0:0", None, "node failed"),
        ("CANCELLED", "0:0", ROOT_UID, "cancelled by root"),
        ("CANCELLED", "0:15", UNKNOWN_UID, "cancelled by user 4294967294"),
        ("CANCELLED", "0:0", None, "cancelled"),
    ],
)
def test_a_job_ends_as_accounting_says_with_its_exit_code_and_who_cancelled_it(
    site: Site,
    accounting: list[AccountedRun],
    state: str,
    exit_code: str,
    by: int | None,
    said: str,
) -> None:
    accounting.append(accounted(0, 9, state, exit_code, by))
    remember(site, record(first_started_s=SUBMITTED_S, ended_s=SUBMITTED_S + 9), runs=[ran(0, 9)])
    output = told(site)
    assert output.startswith(f"Job 12 (train) of alice: {said}.\n")
    assert output.rstrip().endswith(said), "and so does its run"
    data = json.loads(told(site, "12", "--json"))
    named = said.rpartition(" by ")[2] if by is not None else ""
    assert data["end"] == {
        "told": said,
        "while_waiting": False,
        "state": state,
        "exit_code": exit_code,
        "cancelled_by": named,
    }
    (run,) = data["runs"]
    assert (run["state"], run["exit_code"], run["cancelled_by"]) == (state, exit_code, named)


@pytest.mark.parametrize(
    ("kind", "other", "state", "run_ended"),
    [
        ("preempted", "15", "REQUEUED", "preempted by 15"),
        ("requeued", "", "REQUEUED", "requeued"),
        ("idle-requeued", "", "REQUEUED", "requeued for idle GPUs"),
        ("node-failed", "", "NODE_FAIL", "node failed"),
        ("preempted", "15", "NODE_FAIL", "node failed"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_requeued_job_that_is_cancelled_while_it_waits_ends_as_cancelled(
    site: Site,
    accounting: list[AccountedRun],
    kind: str,
    other: str,
    state: str,
    run_ended: str,
    asked: bool,
) -> None:
    if asked:
        accounting += [accounted(0, 600, state), accounted(None, 660, "CANCELLED", by=0)]
    remember(
        site,
        record(restarts=1, first_started_s=SUBMITTED_S, ended_s=SUBMITTED_S + 660),
        runs=[ran(0, 600)],
        events=[happened(600, kind, other)],
    )
    output = told(site)
    end = "cancelled by root while it waited" if asked else "ended while it waited"
    assert output.startswith(f"Job 12 (train) of alice: {end}.\n")
    without = "requeued for idle GPUs" if kind == "idle-requeued" else kind.replace("-", " ")
    by_event = f"{kind} by {other}" if other else without
    assert f"  {run_ended if asked else by_event}\n" in output
    assert "It ran 10m00s in 1 run, waited 1m00s in all" in output
    assert json.loads(told(site, "12", "--json"))["end"]["while_waiting"]


def test_a_job_that_is_cancelled_in_the_second_of_its_requeue_ends_as_cancelled(
    site: Site, accounting: list[AccountedRun]
) -> None:
    accounting += [accounted(0, 600, "REQUEUED"), accounted(None, 600, "CANCELLED", by=0)]
    ended_s = SUBMITTED_S + 600
    remember(
        site, record(restarts=1, first_started_s=SUBMITTED_S, ended_s=ended_s), runs=[ran(0, 600)]
    )
    assert told(site).startswith("Job 12 (train) of alice: cancelled by root while it waited.\n")
    accounting.pop()  # it does not know that yet
    assert told(site).startswith("Job 12 (train) of alice: ended while it waited.\n")


def test_a_job_cancelled_before_it_ran_shows_so(site: Site, accounting: list[AccountedRun]) -> None:
    accounting.append(accounted(None, 9, "CANCELLED", by=0))
    remember(site, record(ended_s=SUBMITTED_S + 9))
    output = told(site)
    assert output.startswith("Job 12 (train) of alice: cancelled by root while it waited.\n")


def test_until_accounting_has_a_run_its_end_is_the_observed_one(site: Site) -> None:
    remember(
        site,
        record(restarts=1, first_started_s=SUBMITTED_S),
        runs=[ran(0, 600), ran(700, None)],
        events=[happened(600, "node-failed", text="n2 is DOWN")],
    )
    assert "node failed\n" in told(site)


@pytest.mark.parametrize("ended", [None, 3600.0])
def test_the_runs_and_waits_of_a_job_add_up_to_its_time(site: Site, ended: float | None) -> None:
    remember(
        site,
        record(
            restarts=2, first_started_s=SUBMITTED_S + 300, ended_s=ended and SUBMITTED_S + ended
        ),
        runs=[ran(300, 900), ran(1500, 1800)],
        events=[happened(900, "preempted", "15"), happened(1800, "requeued")],
    )
    assert "It ran 15m00s in 2 runs, waited 45m00s in all" in told(site)


def test_events_of_an_earlier_job_with_the_same_id_are_left_out(site: Site) -> None:
    remember(site, record(), events=[happened(-100, "preempted", other="3")])
    assert "preempted" not in told(site)


def test_history_of_an_array_with_several_tasks_asks_for_one_task(site: Site) -> None:
    remember(site, record("12_2"), record("12_10"), record("123"))
    result = site.run("history", "12")
    assert result.exit_code == 2
    assert error_of(result) == "Job 12 has several tasks: 12_2 and 12_10. Name one of them."
    assert told(site, "12_10").startswith("Job 12_10 (train)")


def test_control_characters_in_names_are_replaced(site: Site) -> None:
    remember(site, record(name=HOSTILE, user=HOSTILE))
    assert "\x1b" not in told(site)
    assert "\u202e" not in told(site)


def test_json_has_the_same_content(site: Site) -> None:
    remember(site, record(first_started_s=SUBMITTED_S), runs=[ran(0, None)])
    data = json.loads(told(site, "12", "--json"))
    assert (data["schema"], data["job_id"], data["runs"][0]["number"]) == (1, "12", 1)
    assert data["runs"][0]["attained_gpu_s"] == 4 * 3600
