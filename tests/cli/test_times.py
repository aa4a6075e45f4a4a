"""Times on the command line, as spelled by sacct."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import click
import pytest

from slurm_tiresias.cli.times import slurm_time
from slurm_tiresias.errors import UsageError

NOW = datetime(2026, 7, 15, 14, 30, 20)
OPTION = click.Option(["-S", "--since"])


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Wednesday afternoon on a machine east of Greenwich."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        changed.setattr("time.time", NOW.timestamp)
        yield
    time.tzset()


def read(text: str | None) -> float | None:
    return slurm_time(click.Context(click.Command("x")), OPTION, text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31", datetime(2026, 1, 31)),
        ("2026-01-31T12:05", datetime(2026, 1, 31, 12, 5)),
        ("2026-01-31T12:05:09", datetime(2026, 1, 31, 12, 5, 9)),
        ("2026-1-31 noon", datetime(2026, 1, 31, 12)),
        ("01/31/26", datetime(2026, 1, 31)),
        ("01/31/2026", datetime(2026, 1, 31)),
        ("01/31", datetime(2026, 1, 31)),
        ("01/31-17:00", datetime(2026, 1, 31, 17)),
        ("013126", datetime(2026, 1, 31)),
        ("0131", datetime(2026, 1, 31)),
        ("0131-5:00pm", datetime(2026, 1, 31, 17)),
        ("01.31.26", datetime(2026, 1, 31)),
        ("now", NOW),
        ("NOW", NOW),
        ("now-90", NOW - timedelta(seconds=90)),
        ("now-5minutes", NOW - timedelta(minutes=5)),
        ("now-36h", NOW - timedelta(hours=36)),
        ("now-7days", NOW - timedelta(days=7)),
        ("now-1week", NOW - timedelta(days=7)),
        ("now+1day", NOW + timedelta(days=1)),
        ("today", datetime(2026, 7, 15)),
        ("midnight", datetime(2026, 7, 15)),
        ("noon", datetime(2026, 7, 15, 12)),
        ("10:15PM", datetime(2026, 7, 14, 22, 15)),
        ("14:30", datetime(2026, 7, 15, 14, 30)),
        ("14:31", datetime(2026, 7, 14, 14, 31)),
        ("12:00am", datetime(2026, 7, 15)),
        ("12:01 PM", datetime(2026, 7, 15, 12, 1)),
    ],
)
def test_times_are_accepted_in_all_documented_formats(text: str, moment: datetime) -> None:
    assert read(text) == moment.timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "last week",
        "teatime",
        "tomorrow",
        "131",
        "2026-13-01",
        "2026-02-30",
        "2026-01-31T25:00",
        "2026-01-31T12:60",
        "13:00pm",
        "0:30am",
        "now-",
        "now-7fortnights",
        "now-999999999weeks",
        "9999999999",
        "-1",
        "1e9",
        "\x1b[2J",
        "٢٠٢٦-٠١-٣١",
        "T",
        "x" * 5000,
    ],
)
def test_an_invalid_time_is_refused_with_the_accepted_formats(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--since '.*' is not a time\. Write a date") as caught:
        read(text)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 200


def test_a_missing_time_is_none() -> None:
    assert read(None) is None
