"""``tiresias-slurm explain``: why a job waits or runs, and what would change that, in sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from slurm_tiresias.cli import complete
from slurm_tiresias.cli.options import (
    complain_if_not_current,
    is_named_by,
    job_id_argument,
    json_option,
    takes_config,
)
from slurm_tiresias.cli.screen import Screen, show_or_json, stdout
from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.explanation.folded import array_of
from slurm_tiresias.explanation.job import MOST_EVENTS, Case, explain_job
from slurm_tiresias.explanation.section import SCHEMA, Explanation, Section
from slurm_tiresias.settings import Config
from slurm_tiresias.status import published
from slurm_tiresias.status.job_history import query_history
from slurm_tiresias.status.published import PublishedJob, PublishedState
from slurm_tiresias.text import duration, listed, moment, printable


@click.command()
@click.argument(
    "job_id",
    metavar="JOBID",
    callback=job_id_argument,
    shell_complete=complete.of_state(complete.jobs, several=False),
)
@json_option
@takes_config
def explain(config: Config, job_id: str, as_json: bool) -> None:
    """Say why a job waits, runs or was preempted.

    Shows the job's place in the queue, which jobs hold the GPUs that it needs and what protects
    them, what must happen for it to start, and what its user can do. For a job that has ended,
    shows its recorded history; for an array, how many tasks are in which state, and why. If the
    controller does not act (shadow mode, paused), shows what Slurm does, and separately what the
    controller would do. Exit code 1: no such job. Exit code 3: no controller runs, or its published
    state is out of date (the job is explained nevertheless).
    """
    state, now_s = published.read(Path(config.controller.state_dir)), time.time()
    if tasks := _tasks_of(state, job_id):
        from slurm_tiresias.explanation.array import explain_array

        found = explain_array(job_id, tasks, state)
        show_or_json(as_json, lambda: found.data, lambda screen: lines(found, screen))
    elif job := _the_job(state, job_id):
        jobs = {job.job_id: job for job in state.jobs}
        found = explain_job(Case(job, state, jobs, now_s, _dependency(config, job)))
        show_or_json(as_json, found.as_data, lambda screen: lines(found, screen))
    else:
        _explain_ended(config, job_id, state, now_s, as_json=as_json)
        return
    complain_if_not_current(state, now_s)


def _tasks_of(state: PublishedState, array: str) -> list[PublishedJob]:
    """Return the tasks of an array, if the id names several tasks and no single job."""
    tasks = [job for job in state.jobs if array_of(job.job_id) == array]
    alone = len(tasks) == 1 or any(job.job_id == array for job in state.jobs)
    return [] if alone else tasks


def _dependency(config: Config, job: PublishedJob) -> str:
    """Ask Slurm what the job depends on, which the controller does not query."""
    if not job.slurm_reason.startswith("Dependency"):
        return ""
    from slurm_tiresias.controller.driver import driver

    try:
        return driver(config).dependency(job.job_id)
    except TiresiasError:
        return ""


def _the_job(state: PublishedState, job_id: str) -> PublishedJob | None:
    answering = [job for job in state.jobs if is_named_by(job.job_id, job_id)]
    exact = [job for job in answering if job.job_id == job_id]
    if exact or len(answering) == 1:
        return (exact or answering)[0]
    if answering:
        names = listed(tuple(printable(job.job_id) for job in answering))
        raise UsageError(f"Job {job_id} has several parts: {names}", "Name one of them")
    return None


def _explain_ended(
    config: Config, job_id: str, state: PublishedState, now_s: float, *, as_json: bool
) -> None:
    """Explain what happened to a job that the last cycle did not see, from its recorded history."""
    try:
        job = query_history(Path(config.controller.state_dir), job_id).history
    except TiresiasError:
        job = None
    if job is None or job.ended_s is None:
        complain_if_not_current(state, now_s)
        whose = f" of {printable(state.only_of)}, who may see no others" if state.only_of else ""
        raise TiresiasError(
            f"The controller knows no job {job_id}{whose}: it has ended, was submitted just now, "
            "or never requested GPUs in a managed partition",
            f"See Slurm's own records with: sacct -j {job_id}",
        )
    when = f"{duration(now_s - job.ended_s)} ago ({moment(job.ended_s)})"
    ended = f"Job {printable(job.job_id)} has ended, {when}."
    if as_json:
        data = {
            "schema": SCHEMA,
            "cluster": state.cluster,
            "mode": state.mode,
            "at_s": state.at_s,
            "job": None,
            "tier": None,
            "blocking_jobs": [],
            "room_expected_at_s": None,
            "events": [asdict(event) for event in job.events[-MOST_EVENTS:]],
        }
        found = Explanation((ended,), (Section("What happened to it", (ended,)),), data)
        click.echo(json.dumps(found.as_data()))
        return
    from slurm_tiresias.cli.history import history

    screen = stdout()
    screen.show(iter([*screen.prose(f"{ended} Its recorded history:", indent=""), ""]))
    click.get_current_context().invoke(history, job_id=job.job_id, as_json=False)


def lines(explanation: Explanation, screen: Screen) -> Iterator[str]:
    """Yield an explanation for people."""
    for sentence in explanation.headline:
        yield from screen.prose(sentence, indent="")
    for section in explanation.sections:
        yield ""
        yield from screen.section(section.local)
