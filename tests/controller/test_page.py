"""The answers of the live page to a browser, without a network."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.explanation.job import LATELY, Case, sections
from slurm_tiresias.model import EventRecord, JobAccount, Protection, Reason
from slurm_tiresias.status.published import Blocker, PublishedHold, PublishedNode, PublishedState
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import PreemptionCost, RunRecord
from slurm_tiresias.web.http import Answer, Request
from slurm_tiresias.web.page.page import Page
from slurm_tiresias.web.page.recent import MOST_SAMPLES, Samples
from tests.cli.states import NOW_S, running, state, waiting
from tests.controller.pages import cluster, ledger_of

SECRET = "s3cret"
STATE = state(
    running("7", name=SECRET, user="alice", tier=1),
    waiting("8", name="<script>alert(1)</script>", user="bob", reason="no-room"),
    events=(EventRecord(NOW_S, "demoted", "7", "", f"from tier 0 to tier 1 {SECRET}"),),
    nodes=(
        PublishedNode("gpu01", 8, True, "MIXED", (PublishedHold("7", 4, 1),)),
        PublishedNode("gpu02", 8, False, "DOWN", ()),
    ),
)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Job 6 ended a minute after its submission; it ran for half of that time."""
    path = tmp_path / "ledger.sqlite"
    ran = JobAccount("6", 0, NOW_S - 60, NOW_S - 60, NOW_S - 60, 1, user="carol", name=SECRET)
    with closing(Ledger(path)) as writer, writer.transaction():
        writer.jobs.put([replace(ran, first_started_s=NOW_S - 30, ended_s=NOW_S, tier=1)])
        writer.runs.put([RunRecord("6", NOW_S - 30, NOW_S, 30.0, 4, True)])
    return path


@pytest.fixture
def page(ledger: Path) -> Iterator[Page]:
    shown = Page(private=False)
    shown.show(STATE, ledger)
    yield shown


def ask(page: Page, path: str, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return page.answer(Request(path, {"host": "localhost:9817", **named}))


def told(page: Page, path: str = "/state") -> Any:
    answer = ask(page, path)
    assert answer.status == 200
    return json.loads(answer.body)


def files_of(page: Page) -> dict[str, str]:
    """Return the page, and every file that it or one of these files refers to."""
    found = {"": ask(page, "/").body.decode()}
    wanted = set(re.findall(r'(?:src|href)="([^"#]+)"', found[""]))
    while wanted:
        name = wanted.pop()
        answer = ask(page, f"/{name}")
        assert answer.status == 200, name
        found[name] = answer.body.decode()
        wanted |= set(re.findall(r'from "\./([a-z]+\.js)"', found[name])) - found.keys()
    return found


def test_every_reference_of_the_page_is_local_and_exists(page: Page) -> None:
    files = files_of(page)
    assert {"page.css", "page.js", "icon.svg", "lanes.js"} <= files.keys()
    for name, text in files.items():
        elsewhere = set(re.findall(r"https?://[^\"' )]+", text))
        assert elsewhere <= {"http://www.w3.org/2000/svg"}, name


def test_the_page_creates_no_markup_from_text_and_has_no_inline_script_or_style(page: Page) -> None:
    makes_markup = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(")
    for name, text in files_of(page).items():
        assert not makes_markup.search(text), name
    html = ask(page, "/").body.decode()
    assert re.findall(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=", html) == []


def said_of(page: Page, job_id: str) -> dict[str, str]:
    """Return what is said of a job, by the title of the section."""
    found = told(page, f"/jobs/{job_id}")["sections"]
    return {each["title"]: " ".join((*each["sentences"], *each["items"])) for each in found}


def test_every_answer_forbids_foreign_scripts_frames_and_readers(page: Page) -> None:
    for path in ("/", "/page.js", "/state", "/words", "/jobs/7", "/nothing"):
        headers = ask(page, path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert not any(name.startswith("Access-Control") for name in headers)


@pytest.mark.parametrize(
    "path",
    [
        *("/x", "//", "/../page.py", "/static/page.js", "/%2e%2e/page.py", "/page.js/", "/jobs/"),
        *("/jobs/999", "/jobs/7%00", "/jobs/" + "7" * 100, "/jobs/7%27%20OR%201=1", "/state/"),
    ],
)
def test_another_path_gets_404_and_one_line(page: Page, path: str) -> None:
    answer = ask(page, path)
    assert answer.status == 404
    assert answer.body.count(b"\n") == 1 and answer.body.endswith(b"\n")


def test_an_unchanged_state_is_answered_with_304_in_a_cycle(page: Page, ledger: Path) -> None:
    first = ask(page, "/state")
    again = ask(page, "/state", if_none_match=first.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    page.show(replace(STATE, cycle=STATE.cycle + 1), ledger)
    newer = ask(page, "/state", if_none_match=first.headers["ETag"])
    assert newer.status == 200 and newer.headers["ETag"] != first.headers["ETag"]
    assert json.loads(newer.body)["cycle"] == STATE.cycle + 1


def test_a_large_answer_is_compressed_if_the_client_accepts_it(page: Page) -> None:
    plain = ask(page, "/page.js")
    packed = ask(page, "/page.js", accept_encoding="br, gzip;q=0.8")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body and len(packed.body) < len(plain.body)
    assert "Content-Encoding" not in ask(page, "/page.js", accept_encoding="gzip;q=0").headers


def test_the_state_gives_the_job_tier_and_gpus_on_each_node(page: Page) -> None:
    nodes = told(page)["nodes"]
    assert nodes["name"] == ["gpu01", "gpu02"]
    assert nodes["available"] == [True, False]
    assert nodes["held"] == [[["7", 4, 1]], []]


def test_the_state_has_the_jobs_that_ended_with_what_they_took(page: Page) -> None:
    ended = told(page)["ended"]
    assert (ended["key"], ended["jct_s"], ended["queued_s"]) == (["6"], [60.0], [30.0])


def test_a_jobs_data_includes_its_history_even_after_its_end(page: Page) -> None:
    assert told(page, "/jobs/7")["job"]["name"] == SECRET
    ended = told(page, "/jobs/6")
    assert ended["job"] is None
    assert [run["elapsed_s"] for run in ended["life"]["runs"]] == [30.0]


def test_a_waiting_jobs_data_has_the_jobs_ahead(ledger: Path) -> None:
    holds = running("3", gpus=4, attained_gpu_s=2400.0)
    first = waiting("1", rank=0, gpus=1)
    blocker = Blocker("3", Protection.NEAR_TIER.value, None)
    second = waiting("2", rank=1, gpus=3, blockers=(blocker,))
    page = Page(private=False)
    page.show(state(first, second, holds, output_appended=False), ledger)
    said = said_of(page, "2")
    assert "1 waiting job comes before it, and asks for 1 GPU." in said["What happens next"]
    assert "its output files are truncated" in said["Preemptions"]
    assert "comes before it" not in said_of(page, "3")["What happens next"]


def test_the_list_of_jobs_says_why_each_waits_as_status_does(ledger: Path) -> None:
    page = Page(private=False)
    blocker = Blocker("3", Protection.MIN_RUN.value, None)
    holds = running("3", alarm=f"idle GPUs since {{{NOW_S} moment}}")
    page.show(state(waiting("2", reason="protected", blockers=(blocker,)), holds), ledger)
    protected, idle = told(page)["jobs"]["where"]
    assert protected == "protected: 3, minimum run time"
    assert idle == f"idle GPUs since \ue000{NOW_S!r}\ue001; gpu01"


def test_a_jobs_data_says_what_the_command_says(page: Page) -> None:
    job = next(job for job in STATE.jobs if job.job_id == "7")
    jobs = {job.job_id: job for job in STATE.jobs}
    said = [section.title for section in sections(Case(job, STATE, jobs, STATE.at_s))]
    assert list(said_of(page, "7")) == [title for title in said if title != LATELY]


def test_every_reason_has_a_text(page: Page) -> None:
    assert set(told(page, "/words")["reasons"]) == {reason.value for reason in Reason}


def test_with_private_data_the_page_shows_sums_and_tiers_but_no_jobs(ledger: Path) -> None:
    page = Page(private=True)
    page.show(STATE, ledger)
    answer = ask(page, "/state")
    for hidden in (SECRET, "alice", "bob", "alert", '"7"', '"8"', '"6"'):
        assert hidden.encode() not in answer.body, hidden
    seen = json.loads(answer.body)
    assert seen["only_of"] == "nobody"
    assert seen["nodes"]["held"] == [[["", 4, None]], []], "not by which tier"
    assert seen["tiers"][0]["running_jobs"] == STATE.tiers[0].running_jobs
    for job_id in ("6", "7", "8"):
        assert ask(page, f"/jobs/{job_id}").status == 404


@pytest.mark.parametrize("private", [False, True])
def test_the_page_sums_the_losses_of_the_last_24_hours(ledger: Path, private: bool) -> None:
    parts: dict[str, Any] = {"save_s": 4.0, "leave_s": None, "again_s": 60.0, "restart_s": 36.0}
    cost = PreemptionCost("6", 0.0, 0, NOW_S - 60, NOW_S - 61, 8, "reports", **parts)
    of_other_sources = (
        replace(cost, source=source, again_s=None)
        for source in ("silent", "ended", "awaited", "folder")
    )
    a_day_ago = replace(cost, at_s=STATE.at_s - 86_401)
    page = Page(private=private)
    with closing(Ledger(ledger)) as writer, writer.transaction():
        page.show(STATE, ledger)
        writer.costs.put(
            replace(one, run_start_s=float(start_s))
            for start_s, one in enumerate((cost, *of_other_sources, a_day_ago))
        )
    assert told(page)["lost"] == {"lost_gpu_s": 1120.0, "measured": 2, "not_yet": 1, "unknown": 2}


def test_a_controller_that_stands_by_or_has_only_just_started_says_so(page: Page) -> None:
    assert ask(Page(private=False), "/state").status == 503
    page.stand_by()
    assert ask(page, "/state").status == 503
    assert ask(page, "/jobs/7").status == 503
    assert ask(page, "/").status == 200


def test_without_a_readable_ledger_the_rest_is_shown(tmp_path: Path) -> None:
    page = Page(private=False)
    page.show(STATE, tmp_path / "none.sqlite")
    assert told(page)["ended"]["key"] == []
    assert told(page)["lost"] is None
    assert told(page, "/jobs/7")["life"] is None


def test_the_time_series_reaches_back_to_the_start_within_its_bound() -> None:
    course = Samples()
    for cycle in range(1, 20 * MOST_SAMPLES):
        course.follow(replace(STATE, cycle=cycle, at_s=NOW_S + 10 * cycle))
        assert len(course.samples) <= MOST_SAMPLES
    times = [sample.at_s for sample in course.samples]
    assert times[0] == NOW_S + 10
    assert times[-1] > NOW_S + 10 * 20 * MOST_SAMPLES - 10 * 64
    assert times == sorted(times)


def test_the_time_series_skips_failed_cycles() -> None:
    course = Samples()
    course.follow(replace(STATE, failures=1))
    assert course.samples == ()


def test_ten_thousand_jobs_go_in_a_quarter_of_a_megabyte(tmp_path: Path) -> None:
    page = Page(private=False)
    large: PublishedState = cluster(1000, 10_000, 6, at_s=NOW_S)
    page.show(large, ledger_of(tmp_path, 100, 6, at_s=NOW_S))
    packed = ask(page, "/state", accept_encoding="gzip")
    assert len(packed.body) < 256 * 1024
    seen = json.loads(gzip.decompress(packed.body))
    assert len(seen["jobs"]["job_id"]) == 10_000 and len(seen["nodes"]["name"]) == 1000
