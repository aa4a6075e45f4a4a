"""A report on a ledger, compared with figures computed by hand."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_tiresias.cli.report import lines as report_lines
from slurm_tiresias.cli.screen import Screen
from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.model import JobAccount
from slurm_tiresias.report.figures import (
    Filters,
    HungFigures,
    PartyFigures,
    PreemptionFigures,
    Report,
    Spread,
    make_report,
)
from slurm_tiresias.report.page import html
from slurm_tiresias.simulator.sim_cluster import SimCluster
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import PreemptionRecord, RunRecord
from tests.report.pictures import STEP_S, cost, job, period_of, preempted, remember, reported

Job = tuple[JobAccount, list[RunRecord]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def printed(report: Report, width: int) -> str:
    return "\n".join(report_lines(report, Screen(width, False, True)))


def party(parties: Sequence[PartyFigures], name: str) -> PartyFigures:
    return next(one for one in parties if one.name == name)


def three(path: Path) -> Report:
    """A long job of alice on 4 GPUs is preempted for a short one of bob on 2, and resumes after it.

    A third job never runs, and a fourth still waits.
    """
    remember(
        path,
        [
            #         0         1
            #         01234567890123456789
            job("1", "..######.......##|", gpus=4, user="alice", account="lab"),
            job("2", "      ...####|", gpus=2, user="bob", account="class"),
            job("3", "     ...|", user="carol", account="class"),
            job("4", "              ......", user="bob", account="class", partition="big,gpu"),
        ],
        [preempted("1", "2", at=8.1, run=2, signalled=7.5, tier=1, for_tier=0)],
    )
    report, _ = reported(path, 0, 20, gpus_now=8, cluster="hopper")
    return report


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_a_user_limited_to_own_jobs_sees_their_side_of_a_preemption(path: Path, user: str) -> None:
    three(path)
    report, _ = make_report(period_of(path, 0, 20, user), Filters())
    found = report.preemptions
    assert (found.preemptions, found.hidden, found.incomplete) == (1, 1, 0)
    assert found.in_vain == 0, "that is not known"
    assert found.handover == Spread(None, None, None) and found.moved_gpu_s == 0
    mine = party(report.users, user)
    assert (mine.preempted, mine.preempting) == ((1, 0) if user == "alice" else (0, 1))
    if user == "alice":
        assert found.requeue_wait.mean_s == 700 and found.grace.mean_s == 50
    else:
        assert found.requeue_wait.mean_s is None and found.grace.mean_s is None
    assert "In 1 preemption the other job is another user's" in printed(report, 200)


def test_completion_and_queueing_times_are_reported_by_size(path: Path) -> None:
    report = three(path)
    everything = report.all_sizes
    assert everything.jobs == 2 and everything.preempted_jobs == 1
    # Job 1 existed for 17 steps and ran for 8 of them; job 2 for 7 and for 4.
    assert everything.jct == Spread(1200.0, 1200.0, 1700.0)
    assert everything.queueing == Spread(600.0, 600.0, 900.0)
    assert everything.mean_slowdown == pytest.approx((17 / 8 + 7 / 4) / 2)
    by_kind = {size.name: size.jobs for size in report.by_kind}
    assert by_kind == {
        "small and short": 1,
        "small and long": 1,
        "large and short": 0,
        "large and long": 0,
    }, "800 s of running are long"
    assert {size.name: size.jobs for size in report.by_gpus if size.jobs} == {"2 to 4": 2}


def test_jobs_are_counted_by_outcome(path: Path) -> None:
    jobs = three(path).jobs
    assert (jobs.there, jobs.submitted, jobs.completed, jobs.never_ran) == (4, 4, 2, 1)
    assert (jobs.running, jobs.waiting) == (0, 1)


def test_a_preemption_is_reported_with_its_cost_and_the_service_moved(path: Path) -> None:
    found = three(path).preemptions
    assert (found.preemptions, found.jobs, found.for_jobs, found.incomplete) == (1, 1, 1, 0)
    assert found.grace.median_s == 50 and found.grace_gpu_s == 50 * 4
    assert found.handover.median_s == 100 and found.handover_gpu_s == 100 * 4
    assert found.requeue_wait.median_s == 700 and found.not_yet_again == 0
    assert found.ended_runs_gpu_s == 600 * 4
    assert found.moved_gpu_s == 400 * 2, "what job 2 ran while job 1 waited, and no more"
    assert [(t.for_tier, t.tier, t.moved_gpu_s) for t in found.by_tier] == [(0, 1, 800.0)]
    assert [(p.user, p.for_user) for p in found.by_user] == [("alice", "bob")]
    assert [(j.job_id, j.name, j.waited_s) for j in found.most_preempted] == [("1", "train", 700)]


def test_costs_are_summed_by_program_and_unknown_ones_counted(path: Path) -> None:
    parts: dict[str, Any] = {"save_s": 2.0, "leave_s": 3.0, "again_s": 40.0, "restart_s": 5.0}
    jobs = [
        job("1", "##.#.#|", gpus=4, name="saves"),
        job("2", "  #|"),
        job("3", "##.#|", gpus=2, name="silent"),
        job("4", "##..", gpus=8, name="new"),
    ]
    preemptions = [
        *(preempted("1", "2", at=2, run=0), preempted("1", "2", at=4, run=3)),
        *(preempted("3", "2", at=2, run=0), preempted("4", "2", at=2, run=0)),
    ]
    costs = [
        cost("1", 0, 2, 4, answered_s=2.5, **parts),
        cost("1", 3, 4, 4, lost_all=True, **{**parts, "save_s": 0.0, "leave_s": None}),
        cost("4", 0, 2, 8, "awaited"),
    ]
    remember(path, jobs, preemptions, costs)
    report, _ = reported(path, 0, 10)
    found = report.preemptions.cost
    assert (found.preemptions, found.measured, found.not_yet, found.unknown) == (4, 2, 1, 1)
    assert (found.saved, found.lost_all) == (1, 1)
    parts_gpu_s = (found.save_gpu_s, found.leave_gpu_s, found.again_gpu_s, found.restart_gpu_s)
    assert parts_gpu_s == (8.0, 12.0, 320.0, 40.0) and found.lost_gpu_s == 380.0
    assert found.unknown_runs_gpu_s == 2 * 200.0, "all that the run of job 3 used may be lost"
    assert found.answered.median_s == 2.5 and found.again.p95_s == 40.0
    programs = {one.name: one for one in report.preemptions.by_program}
    assert list(programs) == ["saves", "new", "silent"], "those that lost most first"
    assert programs["saves"].lost_gpu_s == 380.0 and programs["silent"].unknown == 1
    assert reported(path, 0, 10, Filters(users=("nobody",)))[0].preemptions.cost.preemptions == 0


def test_gains_and_losses_are_reported_by_user_and_account(path: Path) -> None:
    report = three(path)
    assert [user.name for user in report.users] == ["bob", "carol", "alice"]
    bob, alice = party(report.users, "bob"), party(report.users, "alice")
    assert (bob.preempting, bob.preempted, bob.balance_gpu_s) == (1, 0, 800.0)
    assert (alice.preempting, alice.preempted, alice.balance_gpu_s) == (0, 1, -800.0)
    assert alice.requeue_wait_s == 700
    assert (bob.gpu_s, alice.gpu_s) == (400 * 2, 800 * 4)
    assert (bob.mean_jct_s, bob.mean_queueing_s, bob.mean_slowdown) == (700, 300, 7 / 4)
    assert bob.progress == pytest.approx(4 / 7) and alice.progress == pytest.approx(8 / 17)
    carol = party(report.users, "carol")
    assert (carol.jobs, carol.mean_jct_s, carol.progress) == (0, None, None)
    assert party(report.accounts, "class").balance_gpu_s == 800
    x, y = 4 / 7, 8 / 17
    assert report.fairness.users == pytest.approx((x + y) ** 2 / (2 * (x * x + y * y)))


def test_gpu_use_is_reported_over_time(path: Path) -> None:
    report = three(path)
    assert report.gpu_s == 800 * 4 + 400 * 2
    assert report.gpu_use == report.gpu_s / (8 * 2000)
    course = report.over_time
    assert course.step_s == 2000 / 400
    assert course.peak_gpus == 4 and course.peak_waiting == 2
    assert sum(course.gpus) * course.step_s == pytest.approx(report.gpu_s)
    # Steps of waiting: 2 and 7 of job 1, then 3, 3 and 6 of the others.
    assert sum(course.waiting) * course.step_s == pytest.approx(21 * STEP_S)


def test_only_use_and_ends_within_the_period_count(path: Path) -> None:
    three(path)
    report, _ = reported(path, 5, 14)
    assert report.gpu_s == 3 * STEP_S * 4 + 4 * STEP_S * 2
    assert (report.jobs.there, report.jobs.completed, report.jobs.waiting) == (3, 1, 1)
    assert report.all_sizes.jct.mean_s == 700, "job 2 alone has ended"
    found = report.preemptions
    assert found.preemptions == 1 and found.requeue_wait.median_s == 600, "up to the end of it"
    earlier, _ = reported(path, 0, 8)
    assert earlier.preemptions.preemptions == 0


@pytest.mark.parametrize(
    ("filters", "there", "balance_gpu_s"),
    [
        (Filters(users=("bob",)), 2, 800.0),
        (Filters(users=("alice", "carol")), 2, -800.0),
        (Filters(accounts=("class",)), 3, 800.0),
        (Filters(partitions=("big",)), 1, 0.0),
        (Filters(partitions=("gpu",)), 4, 0.0),
        (Filters(users=("bob",), accounts=("lab",)), 0, 0.0),
    ],
)
def test_a_report_can_be_limited_to_some_jobs(
    path: Path, filters: Filters, there: int, balance_gpu_s: float
) -> None:
    three(path)
    report, _ = reported(path, 0, 20, filters)
    assert report.jobs.there == there
    assert sum(user.balance_gpu_s for user in report.users) == balance_gpu_s
    assert report.preemptions.preemptions == (filters.partitions != ("big",) and there > 0)
    if filters.users:
        assert {user.name for user in report.users} <= set(filters.users)


def preempted_once(path: Path, victim: str, preemptor: str, until: float) -> PreemptionFigures:
    """What is reported of a preemption by these drawings of two jobs of 4 GPUs."""
    jobs = [job("1", victim, gpus=4), job("2", preemptor, gpus=4, user="bob")]
    remember(path, jobs, [preempted("1", "2", at=4.1, run=0)])
    return reported(path, 0, until)[0].preemptions


def test_a_preemption_for_a_job_that_never_started_was_in_vain(path: Path) -> None:
    found = preempted_once(path, "####.####", "  ........", 9)
    assert (found.in_vain, found.moved_gpu_s) == (1, 0.0)
    assert found.handover.mean_s is None and found.grace.mean_s is None


def test_a_preemption_is_in_vain_if_the_victim_restarts_first(path: Path) -> None:
    found = preempted_once(path, "####.##.##|", "  .......##|", 11)
    assert (found.in_vain, found.moved_gpu_s, found.handover.mean_s) == (1, 0.0, None)


def test_the_slowdown_of_very_short_jobs_is_bounded_as_if_they_ran_ten_seconds(path: Path) -> None:
    record, _ = job("1", ".|")
    run = RunRecord("1", 98.0, 100.0, 2.0, 1, True)
    remember(path, [(record, [run])])
    assert reported(path, 0, 10)[0].all_sizes.mean_slowdown == 100 / 10


def test_a_victim_that_has_not_restarted_still_counts_as_waiting(path: Path) -> None:
    found = preempted_once(path, "####......", "  ..######", 10)
    assert found.not_yet_again == 1 and found.requeue_wait.median_s == 600
    assert found.moved_gpu_s == 600 * 4 and found.in_vain == 0


def test_a_job_that_slurm_had_forgotten_ended_with_its_last_run(path: Path) -> None:
    record, runs = job("1", ".####|")
    remember(path, [(_ended(record, 5000.0), runs)])
    assert reported(path, 0, 100)[0].all_sizes.jct.mean_s == 500
    remember(path, [(_ended(record, 5000.0, restarts=1), runs)])
    jct = reported(path, 0, 100)[0].all_sizes.jct
    assert jct.mean_s == 5000, "it was requeued, waited, and was cancelled"


def _ended(record: JobAccount, at_s: float, restarts: int = 0) -> JobAccount:
    return replace(record, ended_s=at_s, restarts=restarts)


def test_a_preemption_noted_by_an_older_version_is_only_counted(path: Path) -> None:
    remember(
        path, [job("1", "##..##|"), job("2", "  ##|")], [PreemptionRecord("1", "2", at_s=210.0)]
    )
    found = reported(path, 0, 10)[0].preemptions
    assert (found.preemptions, found.incomplete, found.moved_gpu_s) == (1, 1, 0.0)
    assert [(t.for_tier, t.tier) for t in found.by_tier] == [(None, None)]


def test_the_id_of_the_other_job_may_have_been_given_to_a_new_one(path: Path) -> None:
    remember(
        path,
        [job("1", "##..##|"), job("2", "   ##|", user="bob")],
        [preempted("1", "2", at=2.1, run=0)],
    )
    assert reported(path, 0, 10)[0].preemptions.moved_gpu_s == 0


def test_a_job_that_was_suspended_used_no_more_than_it_ran(path: Path) -> None:
    record, _ = job("1", "########|", gpus=2)
    run = RunRecord("1", 0.0, 800.0, 400.0, 2, True)
    remember(path, [(record, [run])])
    assert reported(path, 0, 10)[0].gpu_s == 400 * 2
    assert reported(path, 4, 10)[0].gpu_s == 200 * 2


def test_a_report_without_jobs_consists_of_zeros(path: Path) -> None:
    remember(path, [])
    report, drawn = reported(path, 0, 10)
    assert report.jobs.there == 0 and report.gpu_s == 0
    assert report.users == () and report.fairness.users is None
    assert report.all_sizes.jct == Spread(None, None, None)
    assert not drawn.gpus.y.any()


KINDS = st.lists(
    st.tuples(st.text(alphabet="  ..###", max_size=12), st.integers(1, 12), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawings=KINDS, seed=st.integers(0, 2**32))
def test_the_parts_of_any_report_add_up_to_the_whole(
    tmp_path_factory: pytest.TempPathFactory, drawings: list[tuple[str, int, bool]], seed: int
) -> None:
    path = tmp_path_factory.mktemp("sums") / "ledger.sqlite"
    chance = random.Random(seed)
    jobs = [_anybodys(number, *drawing, chance) for number, drawing in enumerate(drawings)]
    remember(path, jobs, list(_anyhow(jobs, chance)))
    report, drawn = reported(path, chance.randrange(4), chance.randrange(5, 14))
    _assert_adds_up(report)
    assert sum(len(values) for values in drawn.jct_s.values()) == report.jobs.completed
    assert np.all(drawn.gpus.y >= 0)


def _anybodys(number: int, drawing: str, gpus: int, over: bool, chance: random.Random) -> Job:
    # A job that exists stays until it ends.
    stays = drawing.lstrip().replace(" ", ".") or "."
    before = " " * (len(drawing) - len(drawing.lstrip()))
    return job(
        str(number + 1),
        before + stays + "|" * over,
        gpus=gpus,
        user=chance.choice(("alice", "bob", "")),
        account=chance.choice(("lab", "class")),
    )


def _anyhow(jobs: list[Job], chance: random.Random) -> Sequence[PreemptionRecord]:
    """Each run except the last was preempted for some job, or for one that is unknown."""
    return [
        preempted(
            record.key,
            chance.choice(jobs)[0].key if chance.random() < 0.9 else "999",
            at=(run.end_s or 0.0) / STEP_S + 0.1,
            run=run.start_s / STEP_S,
        )
        for record, runs in jobs
        for run in runs[:-1]
    ]


def _assert_adds_up(report: Report) -> None:
    found, jobs = report.preemptions, report.jobs
    assert jobs.there == sum(
        (jobs.completed, jobs.never_ran, jobs.running, jobs.waiting, jobs.earlier)
    )
    assert report.all_sizes.jobs == jobs.completed
    for sizes in (report.by_kind, report.by_gpus):
        assert sum(size.jobs for size in sizes) == jobs.completed
        assert sum(size.jobs * (size.jct.mean_s or 0) for size in sizes) == pytest.approx(
            jobs.completed * (report.all_sizes.jct.mean_s or 0)
        )
    for parties in (report.users, report.accounts):
        assert sum(one.jobs for one in parties) == jobs.completed
        assert sum(one.gpu_s for one in parties) == pytest.approx(report.gpu_s)
        assert sum(one.preempted for one in parties) == found.preemptions
        assert sum(one.given_gpu_s for one in parties) == pytest.approx(found.moved_gpu_s)
        assert sum(one.received_gpu_s for one in parties) == pytest.approx(found.moved_gpu_s)
    for groups in (found.by_tier, found.by_user):
        assert sum(group.preemptions for group in groups) == found.preemptions
        assert sum(group.moved_gpu_s for group in groups) == pytest.approx(found.moved_gpu_s)
    course = report.over_time
    assert sum(course.gpus) * course.step_s == pytest.approx(report.gpu_s, abs=1e-6)
    assert found.in_vain <= found.preemptions and min(course.waiting) >= 0
    for index in (report.fairness.users, report.fairness.accounts):
        assert index is None or 0 < index <= 1 + 1e-9


def test_ends_before_the_controllers_first_cycle_are_not_counted(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.note_first_look(10 * STEP_S)
    remember(
        path,
        [
            #         0         1
            #         01234567890123456789
            job("1", ".####|", user="alice"),  # ended before
            job("2", "..##########|", user="bob"),  # ran before, and ended
            job("3", ".....##############", user="bob"),  # ran before, and runs
            job("4", " ..........##|", user="carol"),  # waited before
            job("5", "           .##|", user="carol"),
            job("6", "      .....|", user="carol"),
        ],
    )
    report, _ = reported(path, 0, 20, gpus_now=2)
    jobs = report.jobs
    assert report.since_s == 10 * STEP_S
    assert (jobs.there, jobs.completed, jobs.earlier) == (5, 2, 1)
    assert (jobs.never_ran, jobs.running, jobs.waiting, jobs.submitted) == (1, 1, 0, 1)
    assert report.all_sizes.jobs == sum(size.jobs for size in report.by_gpus) == 2
    # Of the second job two steps, of the third ten (it runs on), and both of carol's.
    assert report.gpu_s == (2 + 9 + 2 + 2) * STEP_S
    assert report.gpu_use == report.gpu_s / (2 * 10 * STEP_S)
    assert party(report.users, "bob").jobs == 0 and party(report.users, "bob").gpu_s > 0
    assert "alice" not in {user.name for user in report.users}
    assert "1 more ended that had started before" in "\n".join(report_lines(report, Screen(), True))


def test_a_job_started_in_the_second_of_the_first_observation_counts(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.note_first_look(STEP_S + 0.6)
    remember(path, [job("1", ".####|")])
    jobs = reported(path, 0, 20)[0].jobs
    assert (jobs.completed, jobs.earlier) == (1, 0)


def test_completion_times_are_compared_with_a_fair_share_by_party(path: Path) -> None:
    remember(
        path,
        [
            # On 4 GPUs; job 1 passes job 2, which would have had half of them meanwhile.
            #         0         1
            #         01234567890123456789
            job("1", "####|", gpus=4, user="alice", account="lab"),
            job("2", "....####|", gpus=4, user="bob", account="lab"),
            job("3", "            ##|", gpus=1, user="carol", account="class"),
        ],
        [],
    )
    report, _ = reported(path, 0, 20, gpus_now=4)
    found = report.fair_share
    assert found is not None and found.gpus == 4
    # Both would have ended after 8 steps.
    assert [one.name for one in found.users] == ["bob", "carol", "alice"]
    assert [one.median for one in found.users] == pytest.approx([1.0, 1.0, 0.5])
    assert [(one.name, one.jobs) for one in found.by_gpus] == [("1", 1), ("2 to 4", 2)]
    assert [one.most for one in found.by_gpus] == pytest.approx([1.0, 1.0])
    assert {one.name: one.jobs for one in found.accounts} == {"lab": 2, "class": 1}
    assert "Against a fair share" in printed(report, 80)


def test_jobs_that_took_more_than_twice_their_fair_share_are_counted(path: Path) -> None:
    remember(path, [job("1", ".........#|", gpus=1, user="ann")], [])
    report, _ = reported(path, 0, 20, gpus_now=4)
    assert report.fair_share is not None
    assert (report.fair_share.all.above_twice, report.fair_share.all.most) == (1, 10.0)


def test_fair_shares_are_hidden_from_users_who_see_only_own_jobs(path: Path) -> None:
    three(path)
    report, _ = make_report(period_of(path, 0, 20, "alice"), Filters(), gpus_now=8)
    assert report.fair_share is None


def test_requeues_of_hung_jobs_save_the_rest_of_their_limits(path: Path) -> None:
    jobs = [
        #         0         1
        #         01234567890123456789
        job("1", "####..####|", gpus=4, user="ann", account="lab"),
        job("2", "####..####|", gpus=2, user="bob", account="lab"),
    ]
    hung = [replace(jobs[0][1][0], hung_s=100.0), *jobs[0][1][1:]]
    false = [replace(jobs[1][1][0], false_verdicts=1), *jobs[1][1][1:]]
    preemptions = [
        preempted("1", "", 4, 0, 3, cause=Cause.HUNG),
        preempted("2", "", 4, 0, 3, cause=Cause.HUNG),
    ]
    limited = replace(jobs[0][0], time_limit_s=10 * hung[0].elapsed_s)
    remember(path, [(limited, hung), (jobs[1][0], false)], preemptions)
    report, _ = reported(path, 0, 20, gpus_now=8)
    assert (report.preemptions.preemptions, report.idle_requeues) == (0, 0)
    ran_s = hung[0].elapsed_s
    assert report.hung == HungFigures(1, 400.0, 2, 4 * 9 * ran_s, 1, 2 * ran_s)
    text = printed(report, 100)
    assert "1 run hung, and held 0.11 GPU-h meanwhile" in text
    assert "1 verdict proved false" in text


def test_requeues_for_idle_gpus_count_apart_from_preemptions(path: Path) -> None:
    jobs = [
        #         0         1
        #         01234567890123456789
        job("1", "####..####..####|", gpus=4, user="ann", account="lab"),
        job("2", "####..####|", gpus=4, user="bob", account="lab"),
        job("3", "....##|", gpus=4, user="eve", account="other"),
    ]
    runs = [replace(run, idle_gpu_s=100.0) for run in jobs[0][1]]
    preemptions = [
        preempted("1", "", 4, 0, 3, cause=Cause.IDLE_GPUS),
        preempted("1", "", 10, 6, 9, cause=Cause.IDLE_GPUS),
        preempted("2", "3", 4, 0, 3),
    ]
    remember(path, [(jobs[0][0], runs), *jobs[1:]], preemptions)
    report, _ = reported(path, 0, 20, gpus_now=8)
    assert (report.preemptions.preemptions, report.idle_requeues) == (1, 2)
    ann, bob = party(report.users, "ann"), party(report.users, "bob")
    assert (ann.preempted, ann.idle_requeues) == (0, 2)
    assert (bob.preempted, bob.idle_requeues) == (1, 0)
    assert party(report.accounts, "lab").idle_requeues == 2
    text = printed(report, 100)
    assert "For that, jobs were requeued 2 times" in text
    assert re.search(r"^ann +.* 2$", text, re.MULTILINE)


def test_completion_times_are_compared_with_the_best_baseline(path: Path) -> None:
    remember(
        path,
        [
            # On 4 GPUs; job 2 passed job 1, which stock Slurm, the best, would have started first.
            #         0         1
            #         01234567890123456789
            job("1", ".####|", gpus=4, user="ann", account="lab"),
            job("2", " #|", gpus=4, user="bob", account="lab"),
            # Wider than the cluster that is simulated
            job("3", "     ##|", gpus=8, user="bob", account="lab"),
        ],
        [],
    )
    report, _ = reported(path, 0, 20, stock_cluster=SimCluster(1, 4))
    found = report.stock_slurm
    assert found is not None and (found.gpus, found.all.jobs) == (4, 2)
    assert {one.name: one.median for one in found.users} == pytest.approx(
        {"ann": 1.25, "bob": 0.25}
    )
    assert found.all.mean_jct_s == pytest.approx(3 * STEP_S)
    assert found.all.other_mean_jct_s == pytest.approx(4 * STEP_S)
    assert "Against slurm, the best baseline, simulated" in printed(report, 80)
    page = html(*reported(path, 0, 20, stock_cluster=SimCluster(1, 4)))
    assert b"Against slurm, the best baseline, simulated" in page


def test_work_lost_to_preemption_is_not_simulated_under_stock_slurm(path: Path) -> None:
    remember(
        path,
        [job("1", "##..##|", gpus=4), job("2", "  ##|", gpus=4)],
        [preempted("1", "2", at=2, run=0)],
        [cost("1", 0, 2, 4, again_s=STEP_S)],
    )
    report, _ = reported(path, 0, 20, stock_cluster=SimCluster(1, 4))
    assert report.stock_slurm is not None
    # Job 1 needed three steps, and job 2 would have waited for the last of them.
    assert report.stock_slurm.all.other_mean_jct_s == pytest.approx(3 * STEP_S)


def test_gpu_time_held_idle_is_summed_by_party_within_the_period(path: Path) -> None:
    jobs = [
        #         0         1
        #         01234567890123456789
        job("1", "##########|", gpus=4, user="ann", account="lab"),
        job("2", "##########|", gpus=4, user="bob", account="lab"),
    ]
    [idle, busy] = jobs
    run = replace(idle[1][0], idle_gpu_s=1000.0)
    remember(path, [(idle[0], [run]), busy], [])
    report, _ = reported(path, 5, 20, gpus_now=8)
    assert party(report.users, "ann").idle_gpu_s == pytest.approx(500.0)
    assert party(report.users, "bob").idle_gpu_s == 0
    assert report.idle_gpu_s == party(report.accounts, "lab").idle_gpu_s == pytest.approx(500.0)
    text = printed(report, 100)
    assert "GPU-hours held idle" in text
    assert re.search(r"^ann +.* 25%$", text, re.MULTILINE)
    assert not re.search(r"^bob +[\d.]+ +[\d.]+ +0%$", text, re.MULTILINE)
    assert "idle" not in "\n".join(
        report_lines(replace(report, idle_gpu_s=0.0), Screen(100, False, True))
    )
