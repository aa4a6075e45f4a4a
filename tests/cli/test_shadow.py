"""The output of ``shadow report``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing

import pytest

from scripts.testbed.real_cluster import short_folder
from slurm_tiresias.model import JobAccount
from slurm_tiresias.status.shadow_comparison import remember_mode
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, RunRecord
from tests.cli.running import Site, error_of
from tests.cli.states import NOW_S
from tests.other_user import as_root

BEGAN_S = NOW_S - 7200
NOBODY = 65534
HOSTILE = "\x1b[2J\u202e[bold]\nx"


def job(
    key: str, *, user: str = "alice", name: str = "train", ended: float | None = None
) -> JobAccount:
    """A job that was submitted when shadow mode began; times are in seconds since then."""
    return JobAccount(
        key=key,
        restarts=0,
        submitted_s=BEGAN_S,
        tier_entered_s=BEGAN_S,
        queued_s=BEGAN_S,
        entry_number=1,
        user=user,
        name=name,
        ended_s=None if ended is None else BEGAN_S + ended,
    )


def started(key: str, at: float, gpus: int) -> RunRecord:
    return RunRecord(key, BEGAN_S + at, None, 1.0, gpus, False)


def would_start(key: str, at: float) -> EventRecord:
    return EventRecord(BEGAN_S + at, "would", key, "", "start on n1")


def would_leave(key: str, at: float, other: str) -> EventRecord:
    return EventRecord(BEGAN_S + at, "would", key, other, "be preempted")


def remember(
    site: Site,
    jobs: Sequence[JobAccount],
    runs: Sequence[RunRecord] = (),
    events: Sequence[EventRecord] = (),
) -> None:
    with closing(Ledger(site.folder / "ledger.sqlite")) as ledger, ledger.transaction():
        ledger.jobs.put(jobs)
        ledger.runs.put(runs)
        ledger.events.put(events)


def told(site: Site, *options: str) -> str:
    result = site.run("shadow", "report", *options)
    assert result.exit_code == 0, result.output
    output: str = result.stdout
    return output


def test_the_shadow_report_lists_earlier_starts_and_preempted_jobs(site: Site) -> None:
    remember(
        site,
        [job("1"), job("2", user="bob"), job("3"), job("4"), job("5")],
        [started("1", 600, gpus=1), started("2", 3600, gpus=8), started("3", 5, gpus=1)],
        [
            would_start("1", 0),
            would_start("3", 0),
            would_leave("5", 0, "1"),
            would_leave("5", 10, "1"),
            would_start("2", 60),
            would_leave("5", 60, "2"),
            would_start("1", 300),
            would_start("4", 3600),
        ],
    )
    assert told(site) == (
        "Shadow mode since Nov 14 20:13:20, 2h00m: 5 managed jobs existed.\n"
        "\n"
        "3 jobs would have started sooner: 59m00s in the median, 43m00s on average, 1h00m at "
        "most.\n"
        "\n"
        "GPUS       JOBS  MEDIAN    MEAN    MOST\n"
        "1             1  10m00s  10m00s  10m00s\n"
        "5 to 8        1  59m00s  59m00s  59m00s\n"
        "never ran     1   1h00m   1h00m   1h00m\n"
        "\n"
        "Those that would have gained most\n"
        "JOBID  USER   NAME   GPUS  WOULD START      SOONER BY\n"
        "    4  alice  train     -  Nov 14 21:13:20      1h00m\n"
        "    2  bob    train     8  Nov 14 20:14:20     59m00s\n"
        "    1  alice  train     1  Nov 14 20:13:20     10m00s\n"
        "\n"
        "1 job would have been preempted, 2 times in all and at most 2 times each.\n"
        "\n"
        "JOBID  USER   NAME   WOULD BE PREEMPTED\n"
        "    5  alice  train             2 times\n"
        "\n"
        "Each job is judged alone, as if the rest of the queue had stayed as it was. "
        "The effect on all jobs together, if Slurm keeps accounts:\n"
        "    tiresias-slurm simulate --from-sacct --since 2023-11-14 \\\n"
        f"        --config {site.config} --cluster NODESxGPUS\n"
    )


def test_a_job_that_started_by_itself_within_moments_gained_nothing(site: Site) -> None:
    remember(site, [job("1")], [started("1", 15, gpus=1)], [would_start("1", 0)])
    output = told(site)
    assert "No job would have started sooner." in output
    assert "No job would have been preempted." in output


def test_a_job_cancelled_while_waiting_counts_until_its_cancellation(site: Site) -> None:
    remember(site, [job("1", ended=600)], [], [would_start("1", 0)])
    assert json.loads(told(site, "--json"))["sooner"][0]["by_s"] == 600


def test_since_excludes_earlier_events(site: Site) -> None:
    remember(site, [job("1"), job("2")], [], [would_start("1", 0), would_start("2", 3600)])
    data = json.loads(told(site, "--json", "--since", "2023-11-14T21:00"))
    assert [one["job_id"] for one in data["sooner"]] == ["2"]
    assert data["since_s"] == BEGAN_S + 3600


def began(site: Site, at: float, mode: str = "shadow") -> None:
    with closing(Ledger(site.folder / "ledger.sqlite")) as ledger:
        remember_mode(ledger, mode, BEGAN_S + at)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        (
            'mode = "enforce"\n',
            'Set mode = "shadow" in the configuration, restart the controller, and ask again',
        ),
        ('mode = "shadow"\n', "Restart the controller, and ask again"),
    ],
)
def test_there_is_no_report_without_any_shadow_mode(site: Site, settings: str, remedy: str) -> None:
    site.configure(settings)
    remember(site, [job("1")])
    began(site, 0, "enforce")
    result = site.run("shadow", "report")
    assert result.exit_code == 1
    said = f"The controller was never in shadow mode. {remedy} in a week."
    assert error_of(result) == said


def test_without_events_the_report_starts_when_shadow_mode_began(site: Site) -> None:
    remember(site, [job("1")])
    began(site, 0)
    began(site, 3600)
    output = told(site)
    assert output.startswith("Shadow mode since Nov 14 20:13:20, 2h00m: 1 managed job existed.\n")
    assert "No job would have started sooner." in output
    assert "No job would have been preempted." in output


def test_shadow_mode_counts_from_its_start_not_from_the_first_event(site: Site) -> None:
    began(site, 600)
    remember(site, [job("1")], [], [would_start("1", 3600)])
    assert json.loads(told(site, "--json"))["since_s"] == BEGAN_S + 600
    since = json.loads(told(site, "--json", "--since", "2023-11-14T21:00"))["since_s"]
    assert since == BEGAN_S + 2800


def test_only_the_last_time_in_shadow_mode_counts_unless_asked_for_more(site: Site) -> None:
    for at, mode in ((0, "shadow"), (60, "enforce"), (1800, "shadow")):
        began(site, at, mode)
    remember(site, [job("1"), job("2")], [], [would_start("1", 0), would_start("2", 3600)])
    data = json.loads(told(site, "--json"))
    assert (data["since_s"], [one["job_id"] for one in data["sooner"]]) == (BEGAN_S + 1800, ["2"])
    data = json.loads(told(site, "--json", "--since", "2023-11-14"))
    assert (data["since_s"], len(data["sooner"])) == (BEGAN_S, 2)


def test_an_old_ledger_without_that_start_counts_from_the_first_event(site: Site) -> None:
    remember(site, [job("1")], [], [would_start("1", 60)])
    began(site, 3600)
    assert json.loads(told(site, "--json"))["since_s"] == BEGAN_S + 60


@as_root
def test_the_error_for_an_ordinary_user_says_who_may_read_the_ledger() -> None:
    with short_folder() as folder:
        site = Site(folder)
        remember(site, [job("1")])
        # Import everything needed before dropping privileges.
        assert site.run("shadow", "report").exit_code == 1
        os.seteuid(NOBODY)
        try:
            result = site.run("shadow", "report")
        finally:
            os.seteuid(0)
    assert result.exit_code == 8, result.output
    assert error_of(result) == (
        f"The ledger {folder}/ledger.sqlite is for the controller's user and root alone. Do this "
        "as one of them, or ask an administrator."
    )


def test_control_characters_in_names_are_replaced(site: Site) -> None:
    remember(site, [job("1", user=HOSTILE, name=HOSTILE)], [], [would_start("1", 0)])
    assert "\x1b" not in told(site)
    assert "\u202e" not in told(site)
