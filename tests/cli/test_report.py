"""The output of ``report`` as text, JSON and page."""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.cli.report import NEEDED_FOR_A_PAGE
from slurm_tiresias.status import ask_or_read, report_query
from slurm_tiresias.status.report_query import report_service
from slurm_tiresias.status.server import serving
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import PreemptionRecord
from slurm_tiresias.text import cells
from tests.cli.running import Site, error_of
from tests.cli.states import NOW_S, state
from tests.report.pictures import STEP_S, cost, job, preempted, remember

HOSTILE = "\x1b[2J\u202e</style><script>alert(1)</script>&$x^2$\n=1+1"
BEGAN_S = NOW_S - 20 * STEP_S


def later(record: Any) -> Any:
    """The same text with times relative to the beginning."""
    names = ("submitted_s", "first_started_s", "ended_s", "start_s", "end_s")
    moved = {
        name: getattr(record, name) + BEGAN_S
        for name in (*names, "at_s", "run_start_s", "signalled_s")
        if getattr(record, name, None) is not None
    }
    return replace(record, **moved)


def fill(site: Site, user: str = "alice", name: str = "train") -> None:
    """A ledger in which a long job is preempted for a short one, at most two hours before now."""
    jobs = [
        job("1", "..######.......##|", gpus=4, user=user, name=name, account=name),
        job("2", "      ...####|", gpus=2, user="bob", account="class"),
        job("3", "              ......", user="bob", account="class"),
    ]
    moved = [(later(record), [later(run) for run in runs]) for record, runs in jobs]
    told: list[PreemptionRecord] = [
        later(preempted("1", "2", at=8.1, run=2, signalled=7.5, tier=1, for_tier=0))
    ]
    remember(site.folder / "ledger.sqlite", moved, told)


def told(site: Site, *options: str) -> str:
    result = site.run("report", *options)
    assert result.exit_code == 0, result.output
    output: str = result.stdout
    return output


def test_the_report_shows_completion_times_by_size_and_the_costs_of_preemption(site: Site) -> None:
    fill(site)
    site.publish(state())
    lines = told(site).splitlines()
    parts = "\n".join(lines).split("\n\n")
    assert lines[:4] == [
        "From Nov 07 22:13:20 to Nov 14 22:13:20, 7d00h, cluster hopper.",
        "No controller runs: events since its last cycle are unknown.",
        "3 managed jobs existed: 2 ran and ended, 0 ended without, 0 ran and 1 waited at the end.",
        "They used 1.1 GPU-h, 0% of the 256 GPUs that there are now.",
    ]
    assert [part.splitlines()[0].split()[0] for part in parts[1:]] == [
        *("Jobs", "GPUS", "Preemptions", "PREEMPTED", "FOR", "FOR", "JOBID"),
        *("Against", "GPUS", "USER", "ACCOUNT", "Who", "USER", "ACCOUNT", "GPUs", "The"),
    ]
    assert parts[3].startswith(
        "Preemptions\n1 preemption of 1 job, for 1 other. 0.22 GPU-h moved: service of the others"
    )
    shown = {" ".join(line.split()) for line in lines}
    assert shown >= {
        "KIND JOBS JCT MEDIAN P95 Q MEDIAN P95 SLOW PREEMPTED",
        "all 2 20m00s 20m00s 28m20s 10m00s 10m00s 15m00s 1.9 1",
        "large and long 0 - - - - - - - 0",
        "2 to 4 2 20m00s 20m00s 28m20s 10m00s 10m00s 15m00s 1.9 1",
        "alice: train 1 0 ? ? ? ?",
        "0 1 1 0.22",
        "bob alice 1 0.22",
        "1 alice train 1 11m40s 0.22",
        "all 2 1.94 2.12 2.12 1",
        "USER JOBS GPU-H JCT QUEUEING SLOW PROGRESS PREEMPTED PREEMPTING MOVED",
        "bob 1 0.22 11m40s 5m00s 1.8 57% 0 1 +0.22",
        "train 1 0.88 28m20s 15m00s 2.1 47% 1 0 -0.22",
        "4 GPUs at most, 2 waiting jobs at most.",
        "Nov 14 05:25:20 0.1 0.0",
    }


def test_the_costs_of_preemptions_are_shown_by_part_and_by_program(site: Site) -> None:
    fill(site)
    parts: dict[str, Any] = {"save_s": 0.0, "leave_s": 90.0, "again_s": 450.0, "restart_s": 360.0}
    measured = later(cost("1", 2, 8.1, 4, lost_all=True, **parts))
    with closing(Ledger(site.folder / "ledger.sqlite")) as ledger, ledger.transaction():
        ledger.costs.put([measured])
    output = told(site)
    assert (
        "Lost to preemption, as reported by jobs: 1.0 GPU-h, for saves 0, exits 0.10, repeated "
        "work 0.50 and restarts 0.40. Of 1 that were measured, 0 saved when asked, and 1 saved "
        "nothing in their run.\n"
    ) in output
    assert "alice: train      1      1      0  7m30s    6m00s         1.0\n" in output
    assert "cost is unknown" not in output


def test_json_has_every_figure(site: Site) -> None:
    fill(site)
    data = json.loads(told(site, "--json", "-S", "now-30minutes"))
    assert data["schema"] == 1 and data["since_s"] == NOW_S - 1800 and data["until_s"] == NOW_S
    assert data["jobs"]["completed"] == data["all_sizes"]["jobs"] == 2
    assert data["by_kind"][0]["name"] == "small and short"
    assert data["preemptions"]["moved_gpu_s"] == 800
    assert {user["name"]: user["balance_gpu_s"] for user in data["users"]} == {
        "bob": 800,
        "alice": -800,
    }
    assert len(data["over_time"]["gpus"]) == 400


def test_the_documented_fields_are_the_actual_ones(site: Site) -> None:
    fill(site)
    data = json.loads(told(site, "--json"))
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "monitor.md").read_text()
    documented = set(re.findall(r"`(\w+)`", text.partition("## For programs")[2]))
    assert set(_names(data)) <= documented


def _names(data: Any) -> set[str]:
    if isinstance(data, list):
        return set().union(*map(_names, data))
    if not isinstance(data, dict):
        return set()
    return set(data).union(*map(_names, data.values()))


def test_the_report_can_be_limited_to_users_accounts_or_partitions(site: Site) -> None:
    fill(site)
    assert "Only user bob.\nNo controller runs" in told(site, "-u", "bob")
    assert "Only account train and class.\n" in told(site, "-A", "train,class")
    assert "Only partition gpu.\n" in told(site, "--partition", "gpu")
    result = site.run("report", "-u", "nobody")
    assert result.exit_code == 1
    assert "No such job was there from Nov 07 22:13:20 to Nov 14 22:13:20" in error_of(result)


def test_the_jobs_are_compared_with_the_best_baseline_on_the_named_nodes(site: Site) -> None:
    fill(site)
    text = told(site, "--against-stock", "1x4", "-u", "bob")
    # Job 1 would have run for 8 steps at once, and job 2 for 4 of its 6 after that.
    assert re.search(
        r"Against slurm, the best baseline, simulated\n.*\n*.*JCT\s10m00s, measured 11m40s", text
    )
    data = json.loads(told(site, "--against-stock", "1x4", "--json"))
    assert data["stock_slurm"]["gpus"] == 4
    assert data["stock_slurm"]["baseline"] == "slurm"
    assert "20 % never save" in data["stock_slurm"]["saves"]
    assert "best baseline" not in told(site)


def test_tables_can_be_printed_without_headers(site: Site) -> None:
    fill(site)
    output = told(site, "-n")
    assert "small and short" in output and "MEDIAN" not in output


@pytest.mark.parametrize("width", [20, 40, 80])
def test_nothing_is_wider_than_a_narrow_terminal(site: Site, live_site: Site, width: int) -> None:
    fill(site, user="a-user-with-a-rather-long-name", name="and a job with an even longer one")
    code, output = live_site.on_terminal(width, "report", "-S", "2023-11-14", "-E", "2023-11-15")
    assert code == 0, output
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert [line for line in plain.splitlines() if cells(line) > width] == []


def test_text_from_users_is_harmless_on_terminals_in_json_and_on_pages(site: Site) -> None:
    fill(site, user=HOSTILE, name=HOSTILE)
    page = site.folder / "report.html"
    for output in (told(site, "--html", str(page)), page.read_text()):
        assert "\x1b" not in output and "\u202e" not in output
    assert {user["name"] for user in json.loads(told(site, "--json"))["users"]} == {"bob", HOSTILE}
    seen = _Elements()
    seen.feed(page.read_text())
    assert "script" not in seen.names and seen.names["style"] >= 1
    assert not seen.elsewhere, "it needs nothing beside it"


class _Elements(HTMLParser):
    """Parses the elements of a page, and what it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, int] = {}
        self.elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names[tag] = self.names.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.elsewhere.append(f"{tag} {name}={value}")


def test_the_page_has_every_part_in_light_and_in_dark(site: Site) -> None:
    fill(site)
    page = site.folder / "report.html"
    told(site, "--html", str(page), "--json")
    text = page.read_text()
    titles = (
        "Jobs that ran and ended",
        "Preemptions",
        "Who gained and who paid",
        "GPUs in use and waiting",
    )
    for title in titles:
        assert f"<h2>{title}" in text
    assert text.count("<svg") == 4 and "prefers-color-scheme: dark" in text
    assert "#fd00" not in text and "#fe00" not in text, "all colours are the page's"
    assert told(site, "--html", str(page)) and page.read_text() == text, "the same, byte for byte"


def test_a_single_job_is_visible_in_the_figures(site: Site) -> None:
    fill(site)
    page = site.folder / "report.html"
    told(site, "--html", str(page))
    curves = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--series-1\)', page.read_text())
    assert [path for path in curves if path.count("L") >= 3], "a step up, and to both edges"


def test_a_page_is_drawn_even_if_no_job_has_ended(site: Site) -> None:
    record, runs = job("1", "..")
    remember(site.folder / "ledger.sqlite", [(later(record), runs)])
    page = site.folder / "report.html"
    assert "No job was preempted." in told(site, "--html", str(page))
    assert page.read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("-S", "yesterday-ish"), 2, "--since 'yesterday-ish' is not a time"),
        (("-E", "2023-13-99"), 2, "--until '2023-13-99' is not a time"),
        (("-S", "2023-11-14T21:00", "-E", "2023-11-14T20:00"), 2, "is empty"),
        (("-S", "now+1day"), 2, "Name a --since that has passed"),
        (("--html", "{folder}/no/such.html"), 2, "cannot be written"),
        (("--html", "{folder}"), 2, "is not a file"),
        (("--against-stock", "0x4"), 2, "'0x4' is not a cluster"),
        (("-S", "2020-01-01", "-E", "2020-02-01"), 1, "No managed job was there from Jan 01"),
    ],
)
def test_impossible_arguments_are_refused_in_one_line(
    site: Site, options: tuple[str, ...], code: int, said: str
) -> None:
    fill(site)
    result = site.run("report", *(option.format(folder=site.folder) for option in options))
    assert result.exit_code == code
    assert said in error_of(result)
    assert not list(site.folder.glob(".tiresias-*"))


def test_the_report_can_be_limited_to_own_jobs(site: Site) -> None:
    fill(site, user=getpass.getuser())
    output = told(site, "--own")
    assert f"Only jobs of {getpass.getuser()}; other users' jobs are not shown." in output
    assert "1 managed job existed" in output and "bob" not in output


def test_a_report_that_is_refused_is_one_line(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(site)
    ledger = site.folder / "ledger.sqlite"
    monkeypatch.setattr(report_query, "OF_ADMINS", replace(report_query.OF_ADMINS, most_bytes=10))
    with serving(site.folder, {"report": report_service(ledger, private=False)}):
        assert "3 managed jobs" in told(site), "who may read the ledger reads that"
        monkeypatch.setattr(ask_or_read, "newest_ledger", lambda folder: folder / "is-not-yours")
        result = site.run("report")
    assert result.exit_code == 15
    assert "The report of this time has more than" in error_of(result)
    assert "for your own jobs alone (--own)" in error_of(result)


@pytest.mark.parametrize("library", NEEDED_FOR_A_PAGE)
def test_a_missing_library_is_reported_with_how_to_install_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    fill(site)
    monkeypatch.setitem(sys.modules, library, None)
    result = site.run("report", "--html", str(site.folder / "x.html"))
    assert result.exit_code == 1
    assert f"report needs {library}, which is not installed" in error_of(result)


def test_the_report_is_printed_even_if_the_page_cannot_be_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(site)
    page = site.folder / "old.html"
    page.write_text("what was there")

    def no_room(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    result = site.run("report", "--html", str(page))
    assert result.exit_code == 1 and "No space left on device" in error_of(result)
    assert "Jobs that ran and ended" in result.stdout and page.read_text() == "what was there"
