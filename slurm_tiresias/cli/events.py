"""``tiresias-slurm events``: what has happened lately, and what happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from slurm_tiresias.cli.options import (
    complain_if_not_current,
    is_named_by,
    json_option,
    one_job_argument,
    takes_config,
)
from slurm_tiresias.explanation.events import event_text
from slurm_tiresias.model import EventRecord
from slurm_tiresias.settings import Config
from slurm_tiresias.status import published
from slurm_tiresias.text import filled, moment

LOOK_EVERY_S = 1.0


@click.command()
@one_job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until interrupted.")
@json_option
@takes_config
def events(config: Config, job_id: str | None, follow: bool, as_json: bool) -> None:
    """Show the latest events of all jobs, or of one: preemptions, requeues, failures, orders.

    The newest is the last. With --json each line is an object. `history` has all events of a job.
    Exit code 3: no controller runs, or its published state is out of date.
    """
    state_dir = Path(config.controller.state_dir)
    state = published.read(state_dir)
    for event in _new_ones(lambda: published.read(state_dir).events, follow=follow):
        if job_id is None or any(is_named_by(one, job_id) for one in (event.job_id, event.other)):
            click.echo(json.dumps(asdict(event)) if as_json else _line(event))
    complain_if_not_current(state, time.time())


def _new_ones(
    read: Callable[[], tuple[EventRecord, ...]], *, follow: bool
) -> Iterator[EventRecord]:
    """Yield the events there are, and with ``follow`` those that come, for ever."""
    told: set[EventRecord] = set()
    last_s = 0.0
    while True:
        found = read()
        # Each user has a share of the list, so that earlier events may enter it again.
        new = [event for event in found if event not in told and event.at_s >= last_s]
        yield from new
        told.update(new)
        last_s = max((event.at_s for event in found), default=last_s)
        told = {event for event in told if event.at_s >= last_s}
        if not follow:
            return
        time.sleep(LOOK_EVERY_S)


def _line(event: EventRecord) -> str:
    of = f"job {event.job_id}: " if event.job_id else ""
    return f"{moment(event.at_s)}  {filled(of + event_text(event.job_id, event))}"
