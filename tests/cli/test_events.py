"""``events``: the latest events, of one job, and those that come."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from slurm_tiresias.cli import events
from slurm_tiresias.model import EventRecord
from tests.cli.running import Site
from tests.cli.states import state

BOOSTED = EventRecord(1000.0, "boosted", "7", "", "by root (uid 0), until \x1b[2Jtomorrow")
PREEMPTED = EventRecord(1001.0, "preempted", "8_3", "7", "")
PAUSED = EventRecord(1002.0, "paused", "", "", "by root (uid 0)")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            [],
            [
                "job 7: boosted: by root (uid 0), until ?[2Jtomorrow",
                "job 8_3: preempted by job 7",
                "the controller was paused by root (uid 0)",
            ],
        ),
        (["8"], ["job 8_3: preempted by job 7"]),
        (["9"], []),
    ],
)
def test_events_are_told_the_newest_last(site: Site, words: list[str], told: list[str]) -> None:
    site.publish(state(events=(BOOSTED, PREEMPTED, PAUSED)))
    result = site.run("events", *words)
    assert [line.partition("  ")[2] for line in result.stdout.splitlines()] == told


def test_each_event_is_an_object_in_json(site: Site) -> None:
    site.publish(state(events=(PREEMPTED,)))
    (line,) = site.run("events", "--json").stdout.splitlines()
    assert json.loads(line) == {
        "at_s": 1001.0,
        "kind": "preempted",
        "job_id": "8_3",
        "other": "7",
        "text": "",
    }


def test_events_that_come_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LOOK_EVERY_S", 0.0)
    # An earlier event of another user enters the list again when its share grows.
    seen = iter([(BOOSTED,), (BOOSTED, PREEMPTED), (PREEMPTED,), (BOOSTED, PREEMPTED, PAUSED)])
    told = events._new_ones(lambda: next(seen), follow=True)
    assert [*islice(told, 3)] == [BOOSTED, PREEMPTED, PAUSED]
