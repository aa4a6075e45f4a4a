"""The figures of a comparison, and the curves, files and pages made from them."""

from __future__ import annotations

import errno
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.plotting import curves, drawing, spans
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import files, page, plots
from slurm_tiresias.simulator.baselines import BEST
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.report import (
    LINES_LISTED,
    Report,
    Result,
    bin_of,
    fair_jct_s,
    figures,
    records,
)
from slurm_tiresias.simulator.run import POLICIES, Setup
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import Dropped, TraceJob, Workload


def outcome(
    *runs: tuple[float, float], gpus: int = 1, submitted_s: float = 0.0, lost_s: float = 0.0
) -> Outcome:
    """A job that ran in this period, and made no progress for ``lost_s`` of it."""
    ran_s = sum(end_s - start_s for start_s, end_s in runs)
    job = TraceJob(f"{submitted_s:g}-{gpus}", submitted_s, gpus, ran_s - lost_s)
    return Outcome(
        job=job,
        first_start_s=runs[0][0],
        end_s=runs[-1][1],
        waited_s=runs[-1][1] - submitted_s - ran_s,
        preemptions=len(runs) - 1,
        lost_s=lost_s,
        promotions=0,
        runs=runs,
    )


def report(
    *results: tuple[str, tuple[Outcome, ...]],
    workload: Workload | None = None,
    cluster: str = "1x4",
    bound_s: float = 50.0,
) -> Report:
    sim_cluster = parse_cluster("1x4", "skew")
    jobs = tuple(each.job for each in results[0][1])
    return Report(
        workload=workload or Workload("drawn", jobs),
        cluster=cluster,
        unfit=0,
        setup=Setup(sim_cluster, Config(), Costs(sim_cluster, speeds=False, flat_s=0.0), Timing()),
        lower_bound_jct_s=bound_s,
        results=tuple(
            Result(name, found, figures(found, sim_cluster.gpus)) for name, found in results
        ),
        fair_jct_s=fair_jct_s(
            list({each.job.job_id: each.job for _, found in results for each in found}.values()),
            sim_cluster.gpus,
        ),
    )


STOPPED = outcome((0, 100), (150, 210), gpus=4, lost_s=10)
WAITED = outcome((100, 150), gpus=2, submitted_s=90)


def test_the_figures_of_two_jobs_equal_hand_computed_ones() -> None:
    found = figures([STOPPED, WAITED], gpus=4)
    assert (found.jobs, found.average_jct_s, found.median_jct_s) == (2, 135, 135)
    assert (found.p95_jct_s, found.p99_jct_s, found.makespan_s) == (210, 210, 210)
    assert (found.average_wait_s, found.median_wait_s, found.p95_wait_s) == (30, 30, 50)
    assert (found.preemptions, found.promotions) == (1, 0)
    held_gpu_s = 160 * 4 + 50 * 2
    assert found.lost_gpu_s == 40
    assert found.lost_share == 40 / held_gpu_s
    assert found.gpu_use == held_gpu_s / (210 * 4)


def test_who_pays_compares_with_the_fair_share() -> None:
    # With a fair share the wide job has all four GPUs until 90 s, then two of them.
    shared = report(("drawn", (STOPPED, WAITED)))
    assert shared.fair_jct_s == pytest.approx({"0-4": 175.0, "90-2": 50.0})
    (fair,) = (shared.over_fair_share(result) for result in shared.results)
    assert fair.most == pytest.approx(210 / 175)
    assert fair.median == pytest.approx((210 / 175 + 60 / 50) / 2)
    assert fair.above_twice_share == 0.0
    (record,) = records(shared)
    assert record["over_fair_share"]["most"] == pytest.approx(1.2)


def test_a_percentile_is_the_smallest_value_that_so_many_percent_do_not_exceed() -> None:
    # 95 % of 41 jobs are 38.95: the 39th of them, and of 40 exactly the 38th.
    jct_s = [outcome((0, 10 * number)) for number in range(1, 42)]
    assert (figures(jct_s, 1).p95_jct_s, figures(jct_s[:40], 1).p95_jct_s) == (390, 380)
    assert (figures(jct_s, 1).p99_jct_s, figures(jct_s[:1], 1).p99_jct_s) == (410, 10)


def test_there_are_no_figures_without_jobs() -> None:
    found = figures([], gpus=4)
    assert (found.jobs, found.average_jct_s, found.p95_wait_s, found.gpu_use) == (0, 0, 0, 0)
    assert {each.average_jct_s for each in found.bins} == {None}


def test_each_job_is_in_the_bin_of_its_width_and_its_length_alone() -> None:
    long, short = outcome((0, 800), gpus=5), outcome((1000, 1799), gpus=4)
    assert (bin_of(long.job), bin_of(short.job)) == ("LL", "SS")
    found = {each.name: (each.jobs, each.average_jct_s) for each in figures([long, short], 8).bins}
    assert found == {"SS": (1, 1799), "SL": (0, None), "LS": (0, None), "LL": (1, 800)}


def test_policies_are_compared_to_tiresias_l_or_else_to_the_first() -> None:
    one = ("srtf", (STOPPED,))
    assert report(one, ("tiresias-l", (WAITED,))).reference.policy == "tiresias-l"
    assert report(one, ("tiresias-g", (WAITED,))).reference.policy == "tiresias-g"
    assert report(one, ("sf", (WAITED,))).reference.policy == "srtf"


def test_every_record_has_its_ratios_to_the_bound_and_to_the_reference() -> None:
    found = report(("srtf", (STOPPED, WAITED)), ("tiresias-l", (WAITED,)), bound_s=45.0)
    srtf, own = records(found)
    assert {srtf["reference"], own["reference"]} == {"tiresias-l"}
    assert (srtf["avg_jct_over_lower_bound"], own["avg_jct_over_lower_bound"]) == (3, 60 / 45)
    assert srtf["over_reference"] == {
        "avg_jct": 135 / 60,
        "median_jct": 135 / 60,
        "p95_jct": 210 / 60,
        "makespan": 210 / 60,
    }
    assert set(own["over_reference"].values()) == {1.0}


def test_a_job_that_never_fitted_is_reported_and_not_counted() -> None:
    jobs = Workload("two", (STOPPED.job, WAITED.job))
    found = report(("yarn-cs", (STOPPED,)), ("sf", (STOPPED, WAITED)), workload=jobs)
    assert [record["unfinished"] for record in records(found)] == [1, 0]
    assert found.left_out() == (
        "under yarn-cs 1 job never found a place: its figures are without them",
    )


def test_records_say_what_was_dropped_with_the_first_lines_and_the_right_count() -> None:
    dropped = tuple(Dropped(line, "never ran") for line in range(2, 502))
    jobs = Workload("some", (STOPPED.job,), (*dropped, Dropped(600, "asks for no GPU")))
    (record,) = records(report(("sf", (STOPPED,)), workload=jobs))
    assert record["dropped"]["count"] == 501
    first, second = record["dropped"]["reasons"]
    assert (first["count"], len(first["lines"]), first["lines"][0]) == (500, LINES_LISTED, 2)
    assert second == {"why": "asks for no GPU", "count": 1, "lines": [600]}


def test_the_hash_of_jobs_without_a_file_changes_with_any_of_them() -> None:
    one = report(("sf", (STOPPED,)))
    other = report(("sf", (WAITED,)))
    assert one.input_sha256 != other.input_sha256
    assert len(one.input_sha256) == 64


# Curves

times = st.integers(0, 1000)
some_runs = st.lists(st.tuples(times, times), min_size=1, max_size=4).map(
    lambda pairs: tuple(
        (float(a), float(b + 1)) for a, b in _apart(sorted(sorted(pair) for pair in pairs))
    )
)


def _apart(pairs: list[list[int]]) -> list[tuple[int, int]]:
    """Return the intervals, each shifted to follow the one before."""
    moved, end = [], 0
    for start, stop in pairs:
        begin = max(start, end)
        moved.append((begin, begin + stop - start))
        end = begin + stop - start + 1
    return moved


some_outcomes = st.lists(
    st.builds(lambda runs, gpus: outcome(*runs, gpus=gpus), some_runs, st.integers(1, 8)),
    min_size=1,
    max_size=12,
)


@given(some_outcomes)
def test_the_queue_over_time_adds_up_to_all_the_waiting_there_was(found: list[Outcome]) -> None:
    until_s = max(each.end_s for each in found)
    curve = plots.queue_length(found, until_s)
    waited_s = sum(each.waited_s for each in found)
    assert float(np.sum(curve.y[:-1])) * until_s / curves.POINTS == pytest.approx(waited_s)
    assert curve.y.max() <= curve.peak + 1e-6
    assert curve.peak <= len(found)


@given(some_outcomes)
def test_the_gpus_over_time_add_up_to_all_the_service_there_was(found: list[Outcome]) -> None:
    until_s = max(each.end_s for each in found)
    curve = plots.gpus_held(found, until_s)
    held_gpu_s = sum((b - a) * each.job.gpus for each in found for a, b in each.runs)
    assert float(np.sum(curve.y[:-1])) * until_s / curves.POINTS == pytest.approx(held_gpu_s)


@given(st.lists(st.floats(0.1, 1e9), min_size=1, max_size=2000))
def test_every_point_of_a_drawn_distribution_lies_on_it(values: list[float]) -> None:
    curve = curves.distribution(values)
    assert len(curve.x) <= curves.POINTS
    assert (curve.x[-1], curve.y[-1]) == (max(values), 1.0)
    ordered = np.sort(values)
    for value, share in zip(curve.x, curve.y, strict=True):
        # Among equal values any of them may be the one that is drawn.
        at_most = np.searchsorted(ordered, value, side="right") / len(values)
        below = np.searchsorted(ordered, value, side="left") / len(values)
        assert below < share <= at_most


def test_curves_without_data_are_empty() -> None:
    assert curves.distribution([]).x.size == 0
    assert plots.queue_length([], 100.0).y.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.5, "0.50 s"),
        (59.96, "60.0 s"),
        (60, "1.00 min"),
        (754, "12.6 min"),
        (10980, "3.05 h"),
        (86400 * 1234, "1,234 d"),
    ],
)
def test_durations_are_written_with_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert spans.span(seconds) == text


# Files


def test_a_file_is_replaced_atomically_and_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("before")
    target.chmod(0o640)
    files.write_whole(files.check_writable(target), b"after")
    assert target.read_bytes() == b"after"
    assert target.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [target]


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    files.write_whole(files.check_writable(link), b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    target.write_text("before")

    def full(_: Path, __: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_fill", full)
    with pytest.raises(TiresiasError, match="No space left"):
        files.write_whole(target, b"after")
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("name", [".", "no/such/folder", "x" * 300, "nul\0", "/dev/null"])
def test_unwritable_files_are_reported_before_the_simulation(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        files.check_writable(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


# The page

HOSTILE = "<script>alert('x')</script>\u202e&.csv"


class _Elements(HTMLParser):
    """Collects every start tag of a page with its attributes, and all references to ids."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag

    def values(self, attribute: str) -> list[str]:
        return [found[attribute] or "" for _, found in self.tags if attribute in found]


def a_page(name: str = "drawn") -> str:
    jobs = Workload(name, (STOPPED.job, WAITED.job), (Dropped(7, HOSTILE),), (HOSTILE,))
    both = (STOPPED, WAITED)
    found = report(("srtf", both), ("tiresias-l", both), workload=jobs, cluster=HOSTILE)
    return page.html(found).decode()


def test_the_page_needs_no_network_and_no_script() -> None:
    elements = _Elements(a_page())
    assert not {tag for tag, _ in elements.tags} & {"script", "link", "img", "iframe", "object"}
    assert not elements.values("src") + elements.values("href")
    assert all(link.startswith("#") for link in elements.values("xlink:href"))
    policy = next(found for tag, found in elements.tags if found.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_ids_of_the_page_are_unique_and_references_resolve() -> None:
    elements = _Elements(a_page())
    ids = elements.values("id")
    assert len(ids) == len(set(ids))
    named = {word for words in elements.values("aria-labelledby") for word in words.split()}
    drawn = {link.removeprefix("#") for link in elements.values("xlink:href")}
    cut = {clip.removeprefix("url(#").removesuffix(")") for clip in elements.values("clip-path")}
    assert named | drawn | cut <= set(ids)
    assert named and drawn and cut


def test_hostile_file_names_are_shown_on_the_page_and_not_interpreted() -> None:
    content = a_page(HOSTILE)
    assert "<script" not in content
    assert "\u202e" not in content
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;?&amp;.csv" in content


def test_each_figure_is_valid_and_has_a_description() -> None:
    drawn = a_page().split("<svg")[1:]
    assert len(drawn) == 4
    for each in drawn:
        svg = "<svg xmlns:xlink='x'" + each[: each.index("</svg>")] + "</svg>"
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert "srtf" in (root.findtext("desc") or "") + "".join(root.itertext())
        assert root.findtext("title")


def test_every_policy_has_a_distinct_colour_and_pattern() -> None:
    content = page.html(report(*((name, (WAITED,)) for name in POLICIES))).decode()
    assert len({*drawing.SERIES}) == len({*map(str, drawing.DASHES)}) >= len((*POLICIES, BEST))
    for number in range(len(POLICIES)):
        assert content.count(f"--series-{number}: #") == 2
        assert f"var(--series-{number})" in content


@pytest.mark.parametrize("others", [(), (STOPPED,)])
def test_a_page_can_be_made_if_no_job_ended_under_a_policy(others: tuple[Outcome, ...]) -> None:
    jobs = Workload("one", (STOPPED.job,))
    found = report(("yarn-cs", ()), ("tiresias-l", others), workload=jobs)
    assert "under yarn-cs 1 job never found a place" in page.html(found).decode()
    assert records(found)[0]["jobs"] == 0
    assert page.csv(found).decode().count("\n") == 1 + len(others)


def test_a_spreadsheet_does_not_read_job_names_as_formulas() -> None:
    job = TraceJob("=1+1", 0.0, 1, 10.0, model='@x,"y"')
    found = Outcome(job, 0.0, 10.0, 0.0, 0, 0.0, runs=((0.0, 10.0),))
    header, row, _ = page.csv(report(("sf", (found,)))).decode().split("\n")
    assert header.startswith("policy,job_id,submitted_s,first_start_s,end_s,jct_s,waited_s,gpus,")
    assert row == 'sf,\'=1+1,0.0,0.0,10.0,10.0,0.0,1,10.0,"\'@x,""y""",SS,0,0,0.0,0.0'
