"""The in-memory Slurm in cases that a real cluster cannot be made to show: faults, restarts, the
clock, and its invariants under random operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.in_memory import InMemorySlurm, Settings, Submission
from slurm_tiresias.errors import LeaseLostError, SlurmUnreachableError
from slurm_tiresias.model import Amount, JobState, Request
from slurm_tiresias.slurm.protocol import (
    Observation,
    Requeue,
    Slurm,
    Unbounded,
    Unpin,
    Update,
    WriteFailure,
)

PINNED = 3_000_000_000


@pytest.fixture
def slurm() -> InMemorySlurm:
    return InMemorySlurm()


def gpus(count: int, **changes: object) -> Submission:
    """A job that may be spread over nodes; a run of it lasts unless a duration is given."""
    return Submission(Request(Amount({"": 1}, 1), count), **changes)  # type: ignore[arg-type]


def running(slurm: InMemorySlurm, submission: Submission) -> str:
    key = slurm.submit(submission)
    slurm.advance(2)
    assert slurm.job(key).state is JobState.RUNNING
    return key


def test_the_in_memory_slurm_implements_the_driver_protocol(slurm: InMemorySlurm) -> None:
    driver: Slurm = slurm
    assert driver.driver.name == "in-memory"
    assert driver.acting_host() and driver.may_operate()
    assert driver.cluster().requeue_delay_s == 120
    assert [node.name for node in driver.observe().nodes] == ["n1", "n2", "n3", "n4"]
    assert all(node.partitions == {"gpu", "other"} for node in driver.observe().nodes)


# --------------------------------------------------------------------------- scheduling


def test_the_first_job_that_lacks_room_closes_its_partition(slurm: InMemorySlurm) -> None:
    running(slurm, gpus(10))
    first, behind = slurm.submit(gpus(8)), slurm.submit(gpus(2))
    elsewhere = slurm.submit(gpus(2, partitions=("other",)))
    slurm.advance(5)
    assert [slurm.job(key).reason for key in (first, behind)] == ["Resources", "Priority"]
    assert slurm.job(elsewhere).state is JobState.RUNNING
    slurm.write([Update(behind, priority=PINNED)])
    slurm.advance(5)
    assert slurm.job(behind).state is JobState.RUNNING


def test_backfill_starts_jobs_that_do_not_delay_the_first() -> None:
    slurm = InMemorySlurm(settings=Settings(backfill=True))
    running(slurm, gpus(4, time_limit_s=600, node_list="n1"))
    running(slurm, gpus(3, time_limit_s=60, node_list="n2"))
    first = slurm.submit(gpus(16))
    behind = slurm.submit(gpus(1))
    slurm.advance(5)
    assert slurm.job(first).reason == "Resources"
    assert slurm.job(behind).reason == "Priority", "all nodes are planned for the first one"
    slurm.cancel(first)
    slurm.submit(gpus(12, node_list=""))
    slurm.advance(5)
    assert slurm.job(behind).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("kind", "exit_code", "reason"),
    [
        ("afterany", 1, "None"),
        ("afterok", 0, "None"),
        ("afterok", 1, "DependencyNeverSatisfied"),
        ("afternotok", 1, "None"),
        ("afternotok", 0, "DependencyNeverSatisfied"),
    ],
)
def test_a_job_may_wait_for_every_task_of_an_array(
    slurm: InMemorySlurm, kind: str, exit_code: int, reason: str
) -> None:
    array = slurm.submit(gpus(8, array=(0, 1, 2), duration_s=30, exit_code=exit_code))
    key = slurm.submit(gpus(1, dependency=f"{kind}:{array}"))
    slurm.advance(50)
    assert slurm.job(key).reason == "Dependency"
    slurm.advance(50)
    assert slurm.job(key).reason == reason
    slurm.advance(600)
    assert slurm.job(key).reason == reason, "also when the array is forgotten"


def test_a_job_ends_with_its_time_limit_and_is_forgotten_later(slurm: InMemorySlurm) -> None:
    key = running(slurm, gpus(4, time_limit_s=60))
    slurm.advance(70)
    assert (slurm.job(key).slurm_state, slurm.job(key).elapsed_s) == ("TIMEOUT", 60)
    assert [row.state for row in slurm.runs([key], 0.0)] == ["TIMEOUT"]
    slurm.advance(300)
    assert not slurm.observe().jobs
    assert slurm.runs([key], 0.0)


def test_each_feature_a_job_asks_for_is_on_its_nodes(slurm: InMemorySlurm) -> None:
    nodes = [
        node if node.name != "n3" else type(node)(node.name, node.total, features=frozenset({"a"}))
        for node in slurm.observe().nodes
    ]
    featured = InMemorySlurm(nodes)
    request = Request(Amount({"": 1}), 2, features="a&b|a")
    key = running(featured, Submission(request))
    assert set(featured.job(key).allocation) == {"n3"}


def test_actions_that_a_user_may_not_do_are_refused(slurm: InMemorySlurm) -> None:
    key = slurm.submit(gpus(4, begin_in_s=3600))
    assert "denied" in slurm.edit(key, priority=PINNED)
    slurm.write([Update(key, priority=PINNED)])
    assert "not persistent" in slurm.edit(key, priority=500)
    assert slurm.job(key).priority == 500
    slurm.hold(key, by_admin=True)
    assert "denied" in slurm.release(key)
    assert slurm.job(key).held
    assert slurm.release(key, by_admin=True) == ""


# --------------------------------------------------------------------------- faults


def test_a_batch_of_writes_may_be_cut_off(slurm: InMemorySlurm) -> None:
    keys = [slurm.submit(gpus(4, begin_in_s=3600)) for _ in range(3)]
    slurm.breaks_off_after = 2
    with pytest.raises(SlurmUnreachableError):
        slurm.write([Update(key, priority=7) for key in keys])
    assert [slurm.job(key).priority for key in keys] == [7, 7, 1]
    assert slurm.write([Update(keys[2], priority=7)]) == ()


def test_a_write_may_be_refused(slurm: InMemorySlurm) -> None:
    key, other = (running(slurm, gpus(4)) for _ in range(2))
    slurm.refusals[key] = "not today"
    updates = [Update(other, priority=7), Update(key, priority=7)]
    assert slurm.write(updates) == (WriteFailure(updates[1], "not today"),)
    assert slurm.write(updates) == ()


def test_a_row_may_be_unreadable_for_a_while(slurm: InMemorySlurm) -> None:
    key = running(slurm, gpus(4))
    request = slurm.job(key).spec.request
    slurm.garble(key, "odd GPUs")
    assert slurm.job(key).unreadable == "odd GPUs"
    assert slurm.job(key).spec.request.gpu_count == 0
    assert slurm.job(key).state is JobState.RUNNING
    slurm.garble(key, "")
    assert slurm.job(key).spec.request is request


class Lost(Unbounded):
    """The lease of a controller that was superseded."""

    def check(self) -> float:
        raise LeaseLostError("another controller acts", "see which")


def test_only_the_controller_with_the_lease_writes(slurm: InMemorySlurm) -> None:
    key = running(slurm, gpus(1))
    first, second = slurm.reached_by(Lost()), slurm.reached_by(Unbounded())
    with pytest.raises(LeaseLostError):
        first.write([Requeue(key)])
    second.write([Requeue(key)])
    assert [one.job(key).restarts for one in (slurm, first, second)] == [1, 1, 1]


# --------------------------------------------------------------------------- time and memory


def test_accounting_may_learn_late_of_starts_and_ends(slurm: InMemorySlurm) -> None:
    slurm.accounting.delay_s = 30
    key = running(slurm, gpus(4, duration_s=40))
    assert slurm.runs([key], 0.0) == []
    slurm.advance(35)
    assert [row.end_s for row in slurm.runs([key], 0.0)] == [None]
    slurm.advance(10)
    assert slurm.job(key).state is None
    assert [row.end_s for row in slurm.runs([key], 0.0)] == [None]
    slurm.advance(30)
    assert [row.elapsed_s for row in slurm.runs([key], 0.0)] == [40]


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_setting_the_clock_changes_times_but_no_ends(slurm: InMemorySlurm, seconds: float) -> None:
    key = running(slurm, gpus(4, duration_s=60))
    before = slurm.observe()
    slurm.step_clock(seconds)
    after = slurm.observe()
    assert (after.at_s - before.at_s, after.steady_s) == (seconds, before.steady_s)
    assert slurm.job(key).start_s == before.jobs[0].start_s
    assert slurm.job(key).elapsed_s == max(0.0, before.jobs[0].elapsed_s + seconds)
    slurm.advance(57)
    assert slurm.job(key).state is JobState.RUNNING
    slurm.advance(3)
    assert slurm.job(key).state is None


def test_many_small_time_steps_equal_a_large_one() -> None:
    shown = []
    for step_s, steps in ((0.1, 3000), (300.0, 1)):
        slurm = InMemorySlurm()
        keys = [slurm.submit(gpus(8, duration_s=37.3)) for _ in range(5)]
        slurm.write([Update(keys[3], start_in_s=100)])
        for _ in range(steps):
            slurm.advance(step_s)
        shown.append(slurm.observe().jobs)
    assert shown[0] == shown[1]
    assert all(job.state is None for job in shown[0])


def test_due_events_occur_at_any_fraction_of_a_second(slurm: InMemorySlurm) -> None:
    """Sums of tenths of seconds are inexact: time must not stand still just before such a
    moment."""
    key = slurm.submit(gpus(4))
    for tenths in range(200):
        slurm.advance(2 + tenths / 10)
        slurm.write([Requeue(key)])
        slurm.advance(0.4)
        assert slurm.job(key).state is JobState.PENDING
        slurm.write([Update(key, start_in_s=0)])
    assert slurm.job(key).restarts == 200


def test_a_killed_slurmctld_forgets_unsaved_changes(slurm: InMemorySlurm) -> None:
    runs, requeued, ends = (running(slurm, gpus(4)) for _ in range(3))
    waits = slurm.submit(gpus(4, begin_in_s=3600))
    slurm.save_state()
    slurm.write([Update(waits, priority=PINNED), Requeue(requeued)])
    slurm.finish(ends)
    unknown = running(slurm, gpus(4))
    assert slurm.job(requeued).restarts == 1
    slurm.restart()
    assert unknown not in {job.key for job in slurm.observe().jobs}
    assert slurm.job(waits).priority == 1, "the pin is forgotten"
    assert slurm.job(runs).state is JobState.RUNNING
    for key in (requeued, ends):
        # Slurm knows that both ran, but no node reports them.
        assert (slurm.job(key).state, slurm.job(key).restarts) == (JobState.COMPLETING, 1)
    slurm.advance(5)
    free = running(slurm, gpus(12))
    assert free == unknown, "and gives a number again that it has given before"


def test_a_job_whose_suspension_is_forgotten_goes_on(slurm: InMemorySlurm) -> None:
    key = running(slurm, gpus(4, duration_s=100.0))
    slurm.save_state()
    slurm.advance(1)
    slurm.suspend(key)
    slurm.restart()
    assert slurm.job(key).state is JobState.RUNNING
    slurm.advance(120)
    assert slurm.job(key).slurm_state == "COMPLETED"


def test_state_is_saved_periodically(slurm: InMemorySlurm) -> None:
    key = slurm.submit(gpus(4, begin_in_s=3600))
    for _ in range(3):
        slurm.advance(3)
    slurm.restart()
    assert slurm.job(key).state is JobState.PENDING


# --------------------------------------------------------------------- random operations


KEYS = st.integers(1, 8)
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 16), st.booleans()),
    st.tuples(st.just("array"), st.integers(1, 8), st.just(False)),
    st.tuples(st.just("advance"), st.integers(0, 200), st.booleans()),
    st.tuples(
        st.sampled_from(
            (
                "pin",
                "nodes",
                "start",
                "requeue",
                "unpin",
                "cancel",
                "hold",
                "release",
                "suspend",
                "resume",
                "finish",
                "foreign",
                "drain",
                "fail",
                "return",
                "step",
                "save",
                "restart",
            )
        ),
        KEYS,
        st.booleans(),
    ),
)


@given(st.lists(STEPS, max_size=40))
def test_no_sequence_of_actions_allocates_a_gpu_twice_or_loses_a_job(
    steps: Sequence[tuple[str, int, bool]],
) -> None:
    slurm = InMemorySlurm()
    seen = slurm.observe()
    for what, number, flag in steps:
        act(slurm, what, number, flag)
        after = slurm.observe()
        check(slurm, seen, after, forgets=what in ("restart", "advance", "cancel"))
        seen = after


def act(slurm: InMemorySlurm, what: str, number: int, flag: bool) -> None:
    keys = [job.key for job in slurm.observe().jobs]
    key = keys[number % len(keys)] if keys else "1"
    node = f"n{number % 4 + 1}"
    submission = gpus(number, duration_s=50.0 if flag else None, dies_in_s=number)
    acts: dict[str, Callable[[], object]] = {
        "submit": lambda: slurm.submit(submission),
        "array": lambda: slurm.submit(gpus(number, array=(0, 1, 2, 3), array_limit=3)),
        "advance": lambda: slurm.advance(number / 2),
        "pin": lambda: slurm.write([Update(key, priority=PINNED + number)]),
        "nodes": lambda: slurm.write([Update(key, node_list=node if flag else "")]),
        "start": lambda: slurm.write([Update(key, start_in_s=number)]),
        "requeue": lambda: slurm.write([Requeue(key)]),
        "unpin": lambda: slurm.write([Unpin(key)]),
        "cancel": lambda: slurm.cancel(key),
        "hold": lambda: slurm.hold(key, by_admin=flag),
        "release": lambda: slurm.release(key, by_admin=flag),
        "suspend": lambda: keys and slurm.suspend(key),
        "resume": lambda: keys and slurm.resume(key),
        "finish": lambda: keys and slurm.finish(key, exit_code=int(flag)),
        "foreign": lambda: slurm.requeue(key),
        "drain": lambda: slurm.drain(node),
        "fail": lambda: slurm.fail_node(node),
        "return": lambda: slurm.resume_node(node),
        "step": lambda: slurm.step_clock(600.0 if flag else -600.0),
        "save": slurm.save_state,
        "restart": lambda: slurm.restart(killed=flag),
    }
    acts[what]()


def check(slurm: InMemorySlurm, before: Observation, after: Observation, *, forgets: bool) -> None:
    held: dict[str, int] = {}
    for job in after.jobs:
        if job.state is JobState.RUNNING:
            assert job.start_s is not None
            assert sum(amount.gpu_count for amount in job.allocation.values()) == (
                job.spec.request.gpu_count
            )
            for node, amount in job.allocation.items():
                held[node] = held.get(node, 0) + amount.gpu_count
        assert (job.end_s is None) or job.state in (None, JobState.COMPLETING)
        assert (job.state is JobState.PENDING) <= (job.start_s is None and not job.allocation)
    assert all(count <= 4 for count in held.values())
    keys = [job.key for job in after.jobs]
    assert len(set(keys)) == len(keys)
    assert forgets or set(keys) >= {job.key for job in before.jobs}
    again = slurm.observe()
    assert all(job is same for job, same in zip(after.jobs, again.jobs, strict=True))


@given(st.lists(STEPS, max_size=30))
def test_undisturbed_clusters_run_all_eligible_jobs(steps: Sequence[tuple[str, int, bool]]) -> None:
    """At the end only held jobs wait, and no node has a job."""
    slurm = InMemorySlurm()
    for what, number, flag in steps:
        act(slurm, what, number, flag)
    for node in ("n1", "n2", "n3", "n4"):
        slurm.resume_node(node)
    for _ in range(200):
        slurm.advance(130)
        for job in slurm.observe().jobs:
            if job.slurm_state == "SUSPENDED":
                slurm.resume(job.key)
            if job.state is JobState.RUNNING:
                slurm.finish(job.key)
        alive = [job for job in slurm.observe().jobs if job.state is not None]
        if all(job.held for job in alive):
            break
    assert all(job.held for job in alive), alive
    assert not any("MIXED" in node.state for node in slurm.observe().nodes)
