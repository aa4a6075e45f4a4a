"""Unreadable parts of Slurm's output are left alone, and a cycle decides about all the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from scripts.testbed import user_text
from slurm_tiresias.model import JobState
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.pyslurm_driver import PyslurmSlurm
from slurm_tiresias.slurm.pyslurm_process import PyslurmProcess
from slurm_tiresias.slurm.pyslurm_records import SeenJob


@pytest.mark.parametrize(
    ("answer", "was", "odd", "told"),
    [
        ("nodes", " RealMemory=", " RealMemory=1.5E", "a number"),
        ("nodes", " Gres=gpu:4", " Gres=gpu:h100:1.5", "a GPU count"),
        ("partitions", " PriorityTier=", " PriorityTier=high", "a number"),
        ("topology", " Nodes=", " Nodes=n[1-", "a node list"),
    ],
)
def test_a_cycle_continues_with_unreadable_records(
    answer: str,
    was: str,
    odd: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    honest: Callable[[str], str] = user_text._recorded

    def recorded(name: str) -> str:
        text = honest(name)
        spoilt = text.replace(was, odd) if name == answer else text
        assert name != answer or spoilt != text
        return spoilt

    monkeypatch.setattr(user_text, "_recorded", recorded)
    slurm = CommandSlurm()
    with user_text.commands(), caplog.at_level(logging.WARNING):
        seen = slurm.observe()
        slurm.observe()
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1 and told in warnings[0], "once, not in every cycle"
    assert {job.key for job in seen.jobs} == set(user_text.KEYS)
    user_text._decide(seen)


@pytest.mark.parametrize("spoilt", user_text.KEYS)
def test_a_row_without_a_job_id_ends_nothing(spoilt: str, caplog: pytest.LogCaptureFixture) -> None:
    """On the first reading and on the next one, whether the job was seen before or not."""
    honest = user_text.honest()
    rows = tuple(row._replace(key="?") if row.key == spoilt else row for row in honest.rows)
    for before in ((), (honest,)):
        slurm = CommandSlurm()
        with user_text.commands() as answering, caplog.at_level(logging.WARNING):
            for shown in before:
                answering.shown = shown
                slurm.observe()
            caplog.clear()
            answering.shown = user_text.Shown(rows, honest.records)
            for _ in range(2):
                seen = slurm.observe()
                assert {job.key for job in seen.jobs} == {*user_text.KEYS} - {spoilt}
        assert len(caplog.records) == 1, "once, not in every cycle"


class Worker:
    """Answers like pyslurm's process: these jobs."""

    version = "25.11.2"

    def __init__(self, jobs: Sequence[SeenJob]) -> None:
        self._jobs = jobs

    def ask(self, _request: object, _timeout_s: float, **_more: object) -> dict[str, Any]:
        return {"gone": [], "jobs": [list(job) for job in self._jobs]}

    def end(self) -> None:
        """There is nothing to end."""


def as_pyslurm_sees(key: str, **odd: object) -> SeenJob:
    """A recorded job with pyslurm's names, some of whose fields are unusual."""
    row = next(row for row in user_text.honest().rows if row.key == key)
    nothing = dict.fromkeys(SeenJob._fields)
    return SeenJob(
        **{
            **nothing,
            "id": int(row.raw_id),
            "state": row.state,
            "priority": int(row.priority),
            "requeue_count": 0,
            "is_batch_job": True,
            "is_requeueable": True,
            "submit_time": int(row.submit),
            "cpus": int(row.cpus),
            "ntasks": int(row.tasks),
            "tres_nodes": 1,
            "tres_memory_mb": 500,
            "tres_gres": {"gpu": 1},
            "partition": "gpu",
            **odd,
        }  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("key", ["9", "?"])
def test_a_row_of_squeue_that_cannot_be_read_costs_the_pyslurm_driver_only_its_job(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = user_text.Commands._squeue

    def squeue(commands: user_text.Commands, columns: str) -> str:
        """Leave the last field of the row of job 9 out, or its id."""
        rows = commands.shown.rows
        name = next(row.name for row in rows if row.key == "9")
        printed = honest(commands, columns)
        end = columns.rpartition(":")[2]
        first, _, rest = printed.partition(f"{name}{end}")
        separator = columns.partition(":")[2].partition(",")[0]
        return f"{first.removesuffix(separator)}{end}{rest}".replace("\n9\x1e", f"\n{key}\x1e")

    monkeypatch.setattr(user_text.Commands, "_squeue", squeue)
    slurm = PyslurmSlurm(cast(PyslurmProcess, Worker([as_pyslurm_sees("7"), as_pyslurm_sees("9")])))
    with user_text.commands():
        seen = slurm.observe()
    readable = {job.key for job in seen.jobs if not job.unreadable}
    assert readable == {"7"}


@pytest.mark.parametrize(
    "odd",
    [
        {"excluded_nodes": "n[1-"},
        {"state": "ENCHANTED"},
        {"array_id": 9, "array_tasks_waiting": "0-3,..."},
        {"required_nodes": "n[1-"},
        {"tres_gres": {"gpu": "h100:1.5"}},
        {"priority": None},
    ],
)
def test_the_pyslurm_driver_continues_with_unreadable_records(odd: dict[str, object]) -> None:
    jobs = [as_pyslurm_sees("7"), as_pyslurm_sees("9", **odd)]
    slurm = PyslurmSlurm(cast(PyslurmProcess, Worker(jobs)))
    with user_text.commands():
        seen = slurm.observe()
    assert {job.key for job in seen.jobs} == {"7", "9"}
    states = {job.key: job.state for job in seen.jobs}
    assert states["7"] is JobState.PENDING
    unreadable = {job.key for job in seen.jobs if job.unreadable}
    # squeue's row and scontrol's record contain what these two lack.
    assert unreadable == (set() if {"excluded_nodes", "array_id"} & odd.keys() else {"9"})
    user_text._decide(seen)
