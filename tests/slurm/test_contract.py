"""How Slurm behaves, as far as the controller depends on it: one statement per test.

Each test runs on a real cluster with every available driver, and on the in-memory Slurm. A
difference found between the two is first stated as a test here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from scripts.testbed.real_cluster import DRIVERS, RealCluster
from slurm_tiresias.model import JobState, JobStatus
from slurm_tiresias.slurm.protocol import (
    AccountedRun,
    Limit,
    Requeue,
    Unpin,
    Update,
    Write,
    WriteFailure,
)
from tests.slurm.contract import (
    Asked,
    InMemorySite,
    RealSite,
    Script,
    SlurmSite,
    job,
    running,
    wait_for,
    wait_for_reason,
)

PINNED = 3_000_000_000
REAL = [pytest.param(name, marks=pytest.mark.slurm) for name in DRIVERS]


@pytest.fixture(scope="module", params=["in-memory", *REAL])
def site_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def opened(name: str, request: pytest.FixtureRequest) -> Iterator[SlurmSite]:
    """An idle site."""
    if name == "in-memory":
        yield InMemorySite()
        return
    cluster: RealCluster = request.getfixturevalue("cluster")
    cluster.clean()
    with cluster.driver_by(name) as driver:
        yield RealSite(cluster, driver)


@pytest.fixture
def site(site_name: str, request: pytest.FixtureRequest) -> Iterator[SlurmSite]:
    with opened(site_name, request) as site:
        yield site


def refusal(site: SlurmSite, write: Write) -> str:
    """Slurm's message about a refused write."""
    (failure,) = site.slurm.write([write])
    assert failure.write == write
    return failure.message


def write(site: SlurmSite, *writes: Write) -> None:
    """Send a write that Slurm must accept."""
    assert site.slurm.write(writes) == ()


def accounted(site: SlurmSite, key: str, *states: str) -> Sequence[AccountedRun]:
    """Return what accounting has about a job, once its rows have these states. It learns late, and
    may show a job that has just started as PENDING for a moment."""

    def known() -> Sequence[AccountedRun]:
        rows = site.slurm.runs([key], 0.0)
        return rows if [row.state for row in rows] == list(states) else ()

    return site.wait_until(known, f"{key} is accounted for as {states}")


def requeued(site: SlurmSite, key: str) -> None:
    """Requeue a running job and let time pass until it waits."""
    write(site, Requeue(key))
    wait_for(site, key, JobState.PENDING)


# --------------------------------------------------------------------------- observing


def test_unchanged_jobs_keep_the_same_object(site: SlurmSite) -> None:
    waits = site.submit(Asked(begin_in_s=3600))
    done = site.submit(Asked(script="ends"))
    wait_for(site, done, None)
    wait_for_reason(site, waits, "BeginTime")
    first, second = site.slurm.observe(), site.slurm.observe()
    before = {seen.key: seen for seen in first.jobs}
    assert all(seen is before[seen.key] for seen in second.jobs)
    write(site, Update(waits, priority=PINNED))
    written = job(site, waits)
    assert written.priority == PINNED
    assert written.spec is before[waits].spec, "it asks for what it asked for"


def test_a_drained_node_is_not_available_and_its_job_keeps_running(site: SlurmSite) -> None:
    key = running(site, Asked(gpus=4, node_list="n2"))
    site.drain("n2")
    try:
        nodes = {node.name: node.available for node in site.slurm.observe().nodes}
        seen = job(site, key)
    finally:
        site.resume_node("n2")
    assert nodes == {"n1": True, "n2": False, "n3": True, "n4": True}
    assert seen.state is JobState.RUNNING


@pytest.mark.parametrize("script", ["ends", "fails"])
def test_a_job_that_has_ended_has_no_state(site: SlurmSite, script: Script) -> None:
    key = site.submit(Asked(script=script))
    seen = wait_for(site, key, None)
    assert seen.slurm_state == {"ends": "COMPLETED", "fails": "FAILED"}[script]
    assert seen.allocation == {}
    assert seen.start_s is not None
    assert seen.end_s is not None


# --------------------------------------------------------------------------- priorities


def test_a_pinned_priority_shows_and_unpinning_lets_slurm_compute_it_again(site: SlurmSite) -> None:
    running(site, Asked(gpus=16))
    key = site.submit(Asked(gpus=16))
    own = job(site, key).priority
    write(site, Update(key, priority=PINNED))
    assert job(site, key).priority == PINNED
    site.set_nice(key, 50)
    assert job(site, key).priority == PINNED, "a pinned priority is not computed"
    write(site, Unpin(key))
    assert job(site, key).priority == own
    site.set_nice(key, 100)
    assert job(site, key).priority != PINNED


def test_a_running_jobs_priority_can_be_pinned_and_unpinned(site: SlurmSite) -> None:
    key = running(site, Asked(gpus=4))
    write(site, Update(key, priority=PINNED))
    assert job(site, key).priority == PINNED
    write(site, Unpin(key))
    assert job(site, key).priority != PINNED
    assert job(site, key).state is JobState.RUNNING


def test_an_update_of_priority_is_refused_for_a_held_job(site: SlurmSite) -> None:
    waits, runs = site.submit(Asked(held=True)), running(site, Asked())
    site.hold(runs)
    assert job(site, waits).held
    for key in (waits, runs):
        assert "held" in refusal(site, Update(key, priority=PINNED))
        assert job(site, key).priority == 0
    assert job(site, waits).held


def test_unpinning_a_held_job_releases_it_even_if_an_admin_held_it(site: SlurmSite) -> None:
    """This is how Slurm behaves: the caller must never unpin a held job."""
    key = site.submit(Asked(held=True, begin_in_s=3600))
    assert job(site, key).reason == "JobHeldUser"
    write(site, Unpin(key))
    assert not job(site, key).held
    site.hold(key, by_admin=True)
    assert (job(site, key).held, job(site, key).reason) == (True, "JobHeldAdmin")
    write(site, Unpin(key))
    assert not job(site, key).held


def test_holding_and_releasing_a_job_unpins_it(site: SlurmSite) -> None:
    key = site.submit(Asked(begin_in_s=3600))
    own = job(site, key).priority
    write(site, Update(key, priority=PINNED))
    site.hold(key)
    site.release(key)
    assert job(site, key).priority == own


def test_resuming_a_suspended_job_unpins_it(site: SlurmSite) -> None:
    """This is how Slurm behaves: suspending sets the priority to 0, resuming recomputes it."""
    key = running(site, Asked())
    write(site, Update(key, priority=PINNED))
    site.suspend(key)
    assert job(site, key).priority == 0
    assert not job(site, key).held
    assert "held" in refusal(site, Update(key, priority=PINNED))
    site.resume(key)
    assert job(site, key).priority not in (0, PINNED)


def test_a_site_factor_moves_slurms_own_priority_and_outlives_a_hold(site: SlurmSite) -> None:
    running(site, Asked(gpus=16))
    key = site.submit(Asked(gpus=16))
    write(site, Update(key, site_factor=5000))
    assert job(site, key).priority >= 5000
    site.hold(key)
    write(site, Update(key, site_factor=6000))
    assert job(site, key).held
    site.release(key)
    assert job(site, key).priority >= 6000


# --------------------------------------------------------------------------- pending reasons


def pin_until_forgotten(site: SlurmSite, key: str) -> None:
    """Pin a job until Slurm shows no reason for it: sometimes it tries the job again before the
    reason is read."""

    def is_forgotten() -> bool:
        write(site, Update(key, priority=PINNED))
        return job(site, key).reason == "None"

    site.wait_until(is_forgotten, f"Slurm has forgotten why {key} waits")


def test_an_update_makes_slurm_forget_why_a_job_waits(site: SlurmSite) -> None:
    running(site, Asked(gpus=16))
    first, second = site.submit(Asked(gpus=16)), site.submit(Asked(gpus=16))
    wait_for_reason(site, first, "Resources")
    wait_for_reason(site, second, "Priority")
    pin_until_forgotten(site, second)
    wait_for_reason(site, second, "Resources")
    wait_for_reason(site, first, "Priority")


def test_a_job_waits_for_its_begin_time_unless_a_write_starts_it(site: SlurmSite) -> None:
    key = site.submit(Asked(begin_in_s=3600))
    seen = wait_for_reason(site, key, "BeginTime")
    assert seen.eligible_s == pytest.approx(seen.spec.submit_s + 3600, abs=1)
    write(site, Update(key, start_in_s=0))
    wait_for(site, key, JobState.RUNNING)


def test_a_dependency_is_satisfied_or_failed_by_an_end(site: SlurmSite) -> None:
    first = running(site, Asked(gpus=4))
    any_end = site.submit(Asked(dependency=f"afterany:{first}"))
    good_end = site.submit(Asked(dependency=f"afterok:{first}"))
    for key in (any_end, good_end):
        assert wait_for_reason(site, key, "Dependency").eligible_s is None
        assert site.slurm.dependency(key).endswith(f":{first}(unfulfilled)")
    pin_until_forgotten(site, good_end)
    site.cancel(first)
    wait_for(site, any_end, JobState.RUNNING)
    wait_for_reason(site, good_end, "DependencyNeverSatisfied")
    assert job(site, good_end).priority == PINNED


def test_jobs_that_ask_for_reserved_nodes_wait_unless_they_end_in_time(site: SlurmSite) -> None:
    site.reserve("upgrade", "n1", start_in_s=600)
    try:
        (reservation,) = site.slurm.observe().reservations
        long = site.submit(Asked(gpus=2, node_list="n1"))
        elsewhere = site.submit(Asked(gpus=4))
        wait_for_reason(site, long, "ReqNodeNotAvail, May be reserved for other job")
        short = site.submit(Asked(gpus=2, node_list="n1", minutes=2))
        wait_for(site, short, JobState.RUNNING)
        wait_for(site, elsewhere, JobState.RUNNING)
        assert (reservation.name, reservation.nodes) == ("upgrade", frozenset({"n1"}))
        assert set(job(site, elsewhere).allocation).isdisjoint({"n1"})
    finally:
        site.cancel(short)
        wait_for(site, short, None)
        site.remove_reservation("upgrade")
    wait_for(site, long, JobState.RUNNING)


# --------------------------------------------------------------------------- node lists


def test_a_node_list_is_set_and_taken_away(site: SlurmSite) -> None:
    running(site, Asked(gpus=16))
    key = site.submit(Asked(gpus=8))
    write(site, Update(key, priority=PINNED, node_list="n[2-3]"))
    nominated = job(site, key)
    assert nominated.spec.required_node_list == "n[2-3]"
    assert nominated.spec.request.required_nodes == {"n2", "n3"}
    assert nominated.priority == PINNED
    write(site, Update(key, node_list=""))
    assert job(site, key).spec.required_node_list == ""


def test_a_job_with_a_node_list_starts_on_its_nodes(site: SlurmSite) -> None:
    key = site.submit(Asked(gpus=8, begin_in_s=3600))
    write(site, Update(key, node_list="n[2,4]", start_in_s=0))
    assert set(wait_for(site, key, JobState.RUNNING).allocation) == {"n2", "n4"}


def test_a_node_list_for_a_started_job_is_refused_and_shrinks_nothing(site: SlurmSite) -> None:
    key = running(site, Asked(gpus=8, nodes=2))
    before = job(site, key)
    for node_list in ("n1", ""):
        words = refusal(site, Update(key, priority=PINNED, node_list=node_list))
        assert "no longer pending" in words
    after = job(site, key)
    assert after.allocation == before.allocation
    assert after.priority == before.priority, "the whole request is refused"


def test_a_job_that_names_its_nodes_reserves_them_and_blocks_no_other(site: SlurmSite) -> None:
    """A nomination reserves its nodes: no later job in the queue starts there."""
    # With a time limit: otherwise backfill assumes that jobs without one end just as soon.
    running(site, Asked(gpus=3, per_node=True, node_list="n1", minutes=10))
    nominated = site.submit(Asked(gpus=4, nodes=1, begin_in_s=3600))
    write(site, Update(nominated, priority=PINNED, node_list="n1", start_in_s=0))
    wait_for_reason(site, nominated, "Resources")
    same_node = site.submit(Asked(gpus=1, per_node=True, node_list="n1"))
    passes = site.submit(Asked(gpus=8, nodes=2))
    assert "n1" not in wait_for(site, passes, JobState.RUNNING).allocation
    # 22.05 calls them unavailable, later releases say that they may be reserved.
    wait_for_reason(site, same_node, "ReqNodeNotAvail, ")
    assert job(site, nominated).reason == "Resources"


def test_a_job_with_more_listed_nodes_than_requested_is_held_until_changed(site: SlurmSite) -> None:
    """Only until 23.02: since then the list has more nodes to choose from than are needed."""
    key = site.submit(Asked(gpus=2, nodes=1, begin_in_s=3600))
    write(site, Update(key, priority=PINNED, node_list="n[1-2]", start_in_s=0))
    if site.slurm.cluster().version >= (23, 2, 0):
        assert len(wait_for(site, key, JobState.RUNNING).allocation) == 1
        return
    held = wait_for_reason(site, key, "BadConstraints")
    assert held.held
    assert "held" in refusal(site, Update(key, priority=PINNED))
    write(site, Update(key, node_list=""))
    assert not job(site, key).held
    assert job(site, key).priority != PINNED
    wait_for(site, key, JobState.RUNNING)


def test_a_job_waits_for_a_drained_node_that_it_names(site: SlurmSite) -> None:
    site.drain("n3")
    try:
        key = site.submit(Asked(gpus=4, node_list="n3"))
        # UnavailableNodes:n3 on 22.05, "May be reserved for other job" on 26.05.
        wait_for_reason(site, key, "ReqNodeNotAvail, ")
    finally:
        site.resume_node("n3")
    wait_for(site, key, JobState.RUNNING)


# --------------------------------------------------------------------------- requeue


@dataclass(frozen=True, slots=True)
class Requeues:
    """Seven jobs, six of them requeued at once and observed meanwhile, so that Slurm's delay is
    waited for once.

    ``plain`` only gets a start time, ``written`` is changed while it completes, and ``cancelled``
    is cancelled then. ``ending`` was cancelled instead of requeued, and then changed. ``held`` were
    held while they ran, or suspended: the reasons why they wait.
    """

    plain: Mapping[str, JobStatus]
    written: Mapping[str, JobStatus]
    cancelled: Mapping[str, JobStatus]
    held: Mapping[str, JobStatus]
    waited_at_s: float
    told_at_s: float
    requeue_delay_s: float
    ending: JobStatus
    refused_while_ending: Sequence[WriteFailure]
    rows: Sequence[AccountedRun]
    """The observations of ``plain``."""
    later_rows: Sequence[AccountedRun]
    """The observations of ``plain`` after its first run."""
    row_of_cancelled: AccountedRun


@pytest.fixture(scope="module")
def requeues(site_name: str, request: pytest.FixtureRequest) -> Requeues:
    with opened(site_name, request) as site:
        return looked_at_requeues(site)


def looked_at_requeues(site: SlurmSite) -> Requeues:
    plain = site.submit(Asked(gpus=6, tasks=6, held=True, script="ignores SIGTERM"))
    seen_plain = {"held": job(site, plain)}
    site.release(plain)
    written = site.submit(Asked(gpus=4, minutes=1, script="ignores SIGTERM"))
    cancelled, ending = (site.submit(Asked(script="ignores SIGTERM")) for _ in range(2))
    by_user, by_admin, suspended = (site.submit(Asked()) for _ in range(3))
    every = (plain, written, cancelled, by_user, by_admin, suspended)
    for key in (*every, ending):
        wait_for(site, key, JobState.RUNNING)
    seen_plain["running"], seen_cancelled = job(site, plain), {"running": job(site, cancelled)}
    site.hold(by_user)
    site.hold(by_admin, by_admin=True)
    site.suspend(suspended)
    write(site, Update(plain, priority=PINNED), *map(Requeue, every))
    seen_plain["completing"], seen_written = job(site, plain), {"completing": job(site, written)}
    write(site, Update(written, priority=PINNED, node_list="n3", start_in_s=60), Requeue(written))
    seen_written["written"] = job(site, written)
    site.cancel(cancelled)
    site.cancel(ending)
    refused = site.slurm.write([*changes_of(ending), Requeue(ending)])
    seen_ending = job(site, ending)
    seen_plain["waiting"] = wait_for(site, plain, JobState.PENDING)
    waited_at_s = site.slurm.observe().at_s
    wait_for_reason(site, plain, "BeginTime")
    write(site, Update(plain, start_in_s=2))
    seen_plain["told"], told_at_s = job(site, plain), site.slurm.observe().at_s
    seen_written["waiting"] = wait_for(site, written, JobState.PENDING)
    seen_cancelled["ended"] = wait_for(site, cancelled, None)
    held = {
        name: wait_for_reason(site, key, reason)
        for name, key, reason in (
            ("by its user", by_user, "JobHeldUser"),
            ("by an administrator", by_admin, "JobHeldAdmin"),
            ("suspended", suspended, "JobHeldAdmin"),
        )
    }
    seen_plain["again"] = wait_for(site, plain, JobState.RUNNING)
    rows = accounted(site, plain, "REQUEUED", "RUNNING")
    return Requeues(
        plain=seen_plain,
        written=seen_written,
        cancelled=seen_cancelled,
        held=held,
        waited_at_s=waited_at_s,
        told_at_s=told_at_s,
        requeue_delay_s=site.slurm.cluster().requeue_delay_s,
        ending=seen_ending,
        refused_while_ending=refused,
        rows=rows,
        later_rows=site.slurm.runs([plain], (rows[0].end_s or 0.0) + 1),
        row_of_cancelled=accounted(site, cancelled, "REQUEUED")[0],
    )


def test_a_requeued_job_completes_first_without_start_and_end(requeues: Requeues) -> None:
    before = requeues.plain["running"]
    for completing in (requeues.plain["completing"], requeues.written["completing"]):
        assert completing.state is JobState.COMPLETING
        # Slurm shows when a time limit would end the job if it started this second.
        assert (completing.start_s, completing.end_s, completing.restarts) == (None, None, 1)
    assert set(requeues.plain["completing"].allocation) <= set(before.allocation)


def test_a_requeued_job_waits_for_the_delay_or_its_start_time(requeues: Requeues) -> None:
    waiting, told, again = (requeues.plain[name] for name in ("waiting", "told", "again"))
    assert waiting.eligible_s == pytest.approx(
        requeues.waited_at_s + requeues.requeue_delay_s, abs=3
    )
    assert told.eligible_s is not None
    assert told.eligible_s <= requeues.told_at_s + 3
    assert (again.state, again.restarts) == (JobState.RUNNING, 1)


def test_priority_and_request_survive_a_requeue_and_submission_does_not(requeues: Requeues) -> None:
    held, before, waiting, again = (
        requeues.plain[name] for name in ("held", "running", "waiting", "again")
    )
    assert waiting.priority == again.priority == PINNED
    assert waiting.spec.request == before.spec.request == held.spec.request == again.spec.request
    assert waiting.spec.submit_s > before.spec.submit_s, "it stands last in the queue again"


def test_writes_to_a_requeued_job_that_is_completing_are_kept(requeues: Requeues) -> None:
    written, waiting = requeues.written["written"], requeues.written["waiting"]
    assert (waiting.priority, waiting.spec.required_node_list) == (PINNED, "n3")
    assert waiting.eligible_s == written.eligible_s, "a later start time is kept"
    assert waiting.restarts == 1, "it was not requeued twice"


def test_a_cancelled_job_has_an_end_while_it_completes(requeues: Requeues) -> None:
    ending = requeues.ending
    assert (ending.state, ending.restarts) == (JobState.COMPLETING, 0), "it was not requeued"
    assert ending.end_s is not None, "it does not come back"
    failures = requeues.refused_while_ending
    assert [failure.write for failure in failures] == changes_of(ending.key)
    assert all(failure.has_ended for failure in failures)


def test_a_job_cancelled_after_its_requeue_has_ended_with_its_run(requeues: Requeues) -> None:
    before, ended = requeues.cancelled["running"], requeues.cancelled["ended"]
    assert (ended.slurm_state, ended.restarts) == ("CANCELLED", 1)
    assert ended.start_s == before.start_s
    assert ended.end_s is not None
    assert requeues.row_of_cancelled.end_s == ended.end_s


def test_a_job_held_or_suspended_while_it_ran_is_requeued_as_held(requeues: Requeues) -> None:
    assert all(waiting.held for waiting in requeues.held.values())
    assert all(waiting.restarts == 1 for waiting in requeues.held.values())
    reasons = {name: waiting.reason for name, waiting in requeues.held.items()}
    assert reasons == {
        "by its user": "JobHeldUser",
        "by an administrator": "JobHeldAdmin",
        "suspended": "JobHeldAdmin",
    }


def test_every_run_of_a_requeued_job_is_accounted_for(requeues: Requeues) -> None:
    before, now = requeues.rows
    first, again = requeues.plain["running"], requeues.plain["again"]
    assert (before.start_s, before.gpus, now.gpus, now.end_s) == (first.start_s, 6, 6, None)
    assert before.end_s is not None
    assert (before.submit_s, now.submit_s) == (first.spec.submit_s, again.spec.submit_s)
    assert [later.start_s for later in requeues.later_rows] == [now.start_s]


def test_only_a_plain_requeue_runs_an_ended_job_again(site: SlurmSite) -> None:
    done, pending = site.submit(Asked(script="ends")), site.submit(Asked(held=True))
    wait_for(site, done, None)
    write(site, Requeue(done), Requeue(pending))
    assert job(site, done).slurm_state == "COMPLETED"
    assert job(site, pending).restarts == 0
    site.requeue(done)
    again = job(site, done)
    assert (again.restarts, again.start_s, again.end_s) == (1, None, None)
    wait_for(site, done, JobState.PENDING)


def test_a_job_that_may_not_be_requeued_is_refused_unless_allowed(site: SlurmSite) -> None:
    key = running(site, Asked(requeue=False))
    assert not job(site, key).spec.requeue
    assert "disabled" in refusal(site, Requeue(key))
    assert job(site, key).state is JobState.RUNNING
    changed = running(site, Asked())
    site.set_requeue(changed, False)
    assert not job(site, changed).spec.requeue
    assert "disabled" in refusal(site, Requeue(changed))
    write(site, Requeue(changed, allow=True))
    assert (job(site, changed).restarts, job(site, changed).spec.requeue) == (1, True)


def test_a_job_whose_node_fails_is_requeued_and_accounting_says_why(site: SlurmSite) -> None:
    key = running(site, Asked(gpus=4, node_list="n4"))
    site.fail_node("n4")
    try:
        waiting = wait_for(site, key, JobState.PENDING)
        down = next(node for node in site.slurm.observe().nodes if node.name == "n4")
        assert "DOWN" in down.state or "DRAIN" in down.state
        assert not down.available
    finally:
        site.resume_node("n4")
    assert waiting.restarts == 1
    assert accounted(site, key, "NODE_FAIL")


# --------------------------------------------------------------------------- arrays


def test_the_waiting_tasks_of_an_array_are_written_at_once(site: SlurmSite) -> None:
    array = site.submit(Asked(gpus=8, array="0-5"))
    wait_for(site, f"{array}_1", JobState.RUNNING)
    write(site, Update(f"{array}_[2-5]", priority=PINNED))
    jobs = site.slurm.observe().jobs
    tasks = {seen.key: seen for seen in jobs if seen.spec.array_id == int(array)}
    for task in range(2, 6):
        assert tasks[f"{array}_{task}"].priority == PINNED
        assert tasks[f"{array}_{task}"].unsplit_array
        assert tasks[f"{array}_{task}"].raw_id == int(array)
    for task in range(2):
        assert tasks[f"{array}_{task}"].priority != PINNED
        assert not tasks[f"{array}_{task}"].unsplit_array
    write(site, Update(array, priority=77))
    priorities = [seen.priority for seen in site.slurm.observe().jobs if seen.key in tasks]
    assert priorities == [77] * 6, "the number alone means every task, running ones too"


def test_a_node_list_reaches_every_waiting_task_of_an_array(site: SlurmSite) -> None:
    array = site.submit(Asked(gpus=16, array="0-3"))
    wait_for(site, f"{array}_0", JobState.RUNNING)
    for node_list in ("n[1-2]", ""):
        write(site, Update(f"{array}_[1-3]", node_list=node_list))
        jobs = site.slurm.observe().jobs
        waiting = [
            seen for seen in jobs if seen.spec.array_id == int(array) and not seen.allocation
        ]
        assert [seen.spec.required_node_list for seen in waiting] == [node_list] * 3


def test_tasks_of_an_array_are_split_off_when_some_are_written(site: SlurmSite) -> None:
    array = site.submit(Asked(gpus=16, array="0-5"))
    wait_for(site, f"{array}_0", JobState.RUNNING)
    before = job(site, f"{array}_3").spec.request
    write(site, Update(f"{array}_3", priority=PINNED))
    split, rest = job(site, f"{array}_3"), job(site, f"{array}_4")
    assert (split.priority, split.unsplit_array, split.spec.request) == (PINNED, False, before)
    assert rest.unsplit_array
    assert rest.priority != PINNED
    write(site, Update(f"{array}_[4-5]", priority=PINNED))
    unsplit = {task: job(site, f"{array}_{task}").unsplit_array for task in range(1, 6)}
    assert unsplit == {1: True, 2: True, 3: False, 4: False, 5: False}


def unbracketed(words: str) -> str:
    """Slurm's messages about array tasks as in 22.05; 26.05 puts brackets around them."""
    return words.replace("[", "").replace("]", "")


def test_a_task_that_runs_keeps_its_nodes_when_its_array_is_written_to(site: SlurmSite) -> None:
    array = site.submit(Asked(gpus=16, array="0-2"))
    wait_for(site, f"{array}_0", JobState.RUNNING)
    words = refusal(site, Update(f"{array}_[0-2]", node_list="n1"))
    assert "no longer pending" in words
    assert unbracketed(words).startswith(f"{array}_0")
    assert set(job(site, f"{array}_0").allocation) == {"n1", "n2", "n3", "n4"}


def test_a_requeued_task_keeps_its_own_key(site: SlurmSite) -> None:
    array = site.submit(Asked(gpus=16, array="0-3"))
    raw_id = wait_for(site, f"{array}_0", JobState.RUNNING).raw_id
    requeued(site, f"{array}_0")
    task = job(site, f"{array}_0")
    assert (task.restarts, task.unsplit_array, task.raw_id) == (1, False, raw_id)


def test_tasks_beyond_the_limit_of_their_array_wait_for_it(site: SlurmSite) -> None:
    array = site.submit(Asked(array="0-3%2"))
    wait_for(site, f"{array}_1", JobState.RUNNING)
    assert wait_for_reason(site, f"{array}_2", "JobArrayTaskLimit").spec.array_limit == 2
    site.cancel(f"{array}_0")
    wait_for(site, f"{array}_2", JobState.RUNNING)
    wait_for_reason(site, f"{array}_3", "JobArrayTaskLimit")


def test_jobs_that_ask_for_a_licence_share_what_is_left_of_it(site: SlurmSite) -> None:
    runs, waits = (site.submit(Asked(licenses="solver")) for _ in range(2))
    other = job(site, running(site, Asked())).spec
    wait_for_reason(site, waits, "Licenses")
    asks = [job(site, key).spec for key in (runs, waits)]
    shared = (Limit("licence solver", 0, 1, 1),)
    assert site.slurm.limits([*asks, other]) == {runs: shared, waits: shared, other.key: ()}
    site.cancel(runs)
    wait_for(site, waits, JobState.RUNNING)


def test_the_limit_of_an_array_may_be_changed_while_tasks_wait(site: SlurmSite) -> None:
    array = site.submit(Asked(array="0-3", begin_in_s=3600))

    def is_seen(limit: int | None) -> bool:
        return {job(site, f"{array}_{n}").spec.array_limit for n in range(4)} == {limit}

    assert is_seen(None)
    for limit in (1, 3, 0):
        site.limit_array(array, limit)
        site.wait_until(partial(is_seen, limit or None), f"a limit of {limit}")


def test_tasks_cancelled_out_of_a_waiting_array_are_forgotten_at_once(site: SlurmSite) -> None:
    array = site.submit(Asked(array="1-5", begin_in_s=3600))
    assert len(alive(site)) == 5
    site.cancel(f"{array}_[2-3]")
    assert alive(site) == {f"{array}_{n}" for n in (1, 4, 5)}
    assert "nvalid job id" in refusal(site, Update(f"{array}_2", priority=PINNED))
    site.hold(f"{array}_4")
    words = unbracketed(refusal(site, Update(f"{array}_[1-5]", priority=PINNED)))
    assert f"{array}_2-3: Invalid job id" in words
    assert f"{array}_4: Job is in held state" in words
    assert job(site, f"{array}_1").priority == PINNED, "the others have taken it"


def alive(site: SlurmSite) -> set[str]:
    return {seen.key for seen in site.slurm.observe().jobs if seen.state is not None}


# --------------------------------------------------------------------------- refusals


def test_each_refusal_names_its_write_and_the_others_are_done(site: SlurmSite) -> None:
    running(site, Asked(gpus=16))
    good = site.submit(Asked(gpus=16))
    writes: list[Write] = [
        Update("99999", priority=5),
        Update(good, priority=PINNED),
        Requeue("99998"),
        Update(good, node_list="nosuchnode"),
        Unpin("99997"),
        Update(f"{good}_7", priority=5),
        Update(good, node_list="n1"),
    ]
    failures = site.slurm.write(writes)
    assert [failure.write for failure in failures] == [writes[at] for at in (0, 2, 3, 4, 5)]
    assert all("nvalid" in failure.message for failure in failures)
    seen = job(site, good)
    assert (seen.priority, seen.spec.required_node_list) == (PINNED, "n1")


@pytest.mark.parametrize("odd", [Update("1"), Update("1", priority=0), Requeue("no job")])
def test_an_invalid_write_raises_an_error(site: SlurmSite, odd: Write) -> None:
    with pytest.raises(ValueError):
        site.slurm.write([odd])


def test_a_start_time_for_a_job_that_has_started_is_refused(site: SlurmSite) -> None:
    key = running(site, Asked(gpus=4))
    assert "no longer pending" in refusal(site, Update(key, start_in_s=5))


def test_fields_of_an_update_accepted_before_a_refused_one_are_kept(site: SlurmSite) -> None:
    """Slurm's order: node list, priority, start time."""
    held = site.submit(Asked(held=True))
    assert "held" in refusal(site, Update(held, priority=PINNED, node_list="n1", start_in_s=60))
    assert (job(site, held).spec.required_node_list, job(site, held).eligible_s) == ("n1", None)
    runs = running(site, Asked())
    assert "no longer pending" in refusal(site, Update(runs, priority=PINNED, start_in_s=60))
    assert job(site, runs).priority == PINNED
    waits = site.submit(Asked(begin_in_s=3600))
    assert "nvalid node" in refusal(site, Update(waits, priority=PINNED, node_list="nosuch"))
    assert job(site, waits).priority != PINNED


def test_every_write_to_an_ended_job_is_refused(site: SlurmSite) -> None:
    key = site.submit(Asked(script="ends"))
    wait_for(site, key, None)
    writes = changes_of(key)
    failures = site.slurm.write(writes)
    assert [failure.write for failure in failures] == writes
    assert all(failure.has_ended for failure in failures)
    assert site.slurm.signal([key, "99999"], "USR1") == {}


def changes_of(key: str) -> list[Write]:
    """All changes that may be written to a job, except its requeue."""
    return [
        Update(key, priority=5),
        Update(key, node_list="n1"),
        Update(key, start_in_s=5),
        Unpin(key),
    ]


def test_the_partition_of_a_waiting_job_can_be_changed(site: SlurmSite) -> None:
    key = site.submit(Asked(begin_in_s=3600))
    write(site, Update(key, priority=PINNED))
    site.move(key, "other")
    seen = job(site, key)
    assert (seen.spec.partitions, seen.spec.request.partitions) == (("other",), ("other",))
    assert seen.priority == PINNED


def test_a_node_list_beyond_one_partition_holds_only_a_job_of_no_other(site: SlurmSite) -> None:
    """A job of several partitions starts in the one that has all of its required nodes."""
    site.set_partition("other", "n[2-3]")
    try:
        in_one, in_both = (
            site.submit(Asked(gpus=1, per_node=True, nodes=2, begin_in_s=3600)) for _ in range(2)
        )
        site.move(in_one, "other")
        site.move(in_both, "other,gpu")
        for key in (in_one, in_both):
            write(site, Update(key, priority=PINNED, node_list="n[1,3]", start_in_s=0))
        assert set(wait_for(site, in_both, JobState.RUNNING).allocation) == {"n1", "n3"}
        assert wait_for_reason(site, in_one, "BadConstraints").held
    finally:
        site.set_partition("other", "n[1-4]")


# --------------------------------------------------------------------------- suspensions


@dataclass(frozen=True, slots=True)
class Suspensions:
    """Three jobs, suspended at once: one is resumed and cancelled, the others are cancelled or
    requeued while suspended. Each is observed twice before."""

    shown: tuple[JobStatus, JobStatus]
    suspended_at_s: float
    longest_s: float
    """For no longer than that the resumed one was suspended."""
    resumed: AccountedRun
    others: Sequence[AccountedRun]


@pytest.fixture(scope="module")
def suspensions(site_name: str, request: pytest.FixtureRequest) -> Suspensions:
    with opened(site_name, request) as site:
        keys = [running(site, Asked(gpus=3, per_node=True)) for _ in range(3)]
        resumed, cancelled, requeued = keys
        site.wait_until(lambda: job(site, requeued).elapsed_s >= 1, "all have run")
        before_s = site.slurm.observe().steady_s
        for key in keys:
            site.suspend(key)
        suspended = site.slurm.observe()
        first = job(site, resumed)
        site.wait_until(
            lambda: site.slurm.observe().steady_s - suspended.steady_s > 2.1, "two seconds to pass"
        )
        second = job(site, resumed)
        site.resume(resumed)
        longest_s = site.slurm.observe().steady_s - before_s
        site.cancel(resumed)
        site.cancel(cancelled)
        write(site, Requeue(requeued))

        def ends() -> dict[str, AccountedRun]:
            rows = site.slurm.runs(keys, 0.0)
            return {row.key: row for row in rows if row.end_s is not None}

        rows = site.wait_until(lambda: len(ends()) == 3 and ends(), "all ends are accounted for")
        assert rows
        others = [rows[cancelled], rows[requeued]]
        return Suspensions((first, second), suspended.at_s, longest_s, rows[resumed], others)


def test_a_suspended_job_holds_its_gpus_and_its_time_stops(suspensions: Suspensions) -> None:
    first, second = suspensions.shown
    assert (first.state, first.slurm_state) == (JobState.RUNNING, "SUSPENDED")
    assert first.elapsed_s == second.elapsed_s
    assert [held.gpu_count for held in second.allocation.values()] == [3]


def test_a_suspended_jobs_run_ends_at_its_suspension(suspensions: Suspensions) -> None:
    for row in (suspensions.resumed, *suspensions.others):
        assert row.start_s is not None and row.end_s is not None
        suspended_s = row.end_s - row.start_s - row.elapsed_s
        if row is suspensions.resumed:
            assert 1 <= suspended_s <= suspensions.longest_s + 1
        else:
            assert (suspended_s, row.end_s <= suspensions.suspended_at_s) == (0, True)


# --------------------------------------------------------------------------- accounting, signals


def test_each_task_of_an_array_has_a_separate_accounting_row(site: SlurmSite) -> None:
    array = site.submit(Asked(per_node=True, array="0-1", script="ends"))
    tasks = [f"{array}_0", f"{array}_1"]
    site.wait_until(lambda: [row.key for row in site.slurm.runs(tasks, 0.0)] == tasks, "both tasks")
    assert list(site.slurm.runs([], 0.0)) == []


def test_accounting_shows_how_a_running_or_waiting_job_ended(site: SlurmSite) -> None:
    fails = site.submit(Asked(script="fails"))
    wait_for(site, fails, None)
    waits = site.submit(Asked(held=True))
    site.cancel(waits)
    (failed,) = accounted(site, fails, "FAILED")
    assert failed.exit_code == "3:0"
    (cancelled,) = accounted(site, waits, "CANCELLED")
    assert (cancelled.start_s, cancelled.cancelled_by) == (None, 0)
    seen = job(site, waits)
    assert (seen.state, seen.start_s, seen.end_s) == (None, None, cancelled.end_s)


def test_a_signal_leaves_pending_jobs_alone(site: SlurmSite) -> None:
    key = site.submit(Asked(held=True))
    assert site.slurm.signal([key], "KILL") == {}
    assert job(site, key).state is JobState.PENDING


def test_a_signalled_job_may_requeue_itself_and_waits_for_slurms_delay(site: SlurmSite) -> None:
    key = site.submit(Asked(script="requeues itself"))
    site.wait_until(lambda: job(site, key).spec.comment == "ready", "its script expects the signal")
    wait_for(site, key, JobState.RUNNING)
    assert site.slurm.signal([key], "USR1") == {}
    wait_for(site, key, JobState.PENDING)
    assert job(site, key).restarts == 1
    assert (job(site, key).eligible_s or 0.0) > site.slurm.observe().at_s + 60.0
