"""What happens to a nomination while its job waits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from scripts.testbed.job_views import changed
from slurm_tiresias.config import parse
from slurm_tiresias.controller.act import Actor
from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.prospects import lacks_only_resources, why_not_eligible
from slurm_tiresias.core.lifecycle.nomination import (
    Blocker,
    Nominated,
    Nomination,
    StillWaiting,
    allocation_text,
)
from slurm_tiresias.explanation.reasons import slurm_reason_text
from slurm_tiresias.model import Amount, JobState, JobStatus, Node
from slurm_tiresias.slurm.protocol import Observation, Reservation, Slurm
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from tests.controller.fed import fed
from tests.controller.test_job_store import pending
from tests.known import known

CONFIG = parse({})
TWO_NODES = tuple(Node(name, Amount({"": 4}, 16)) for name in ("n1", "n2"))
ON_N1 = {"n1": Amount({"": 2}, 2)}


@pytest.fixture
def job_store(tmp_path: Path) -> Iterator[JobStore]:
    with closing(Ledger(tmp_path / FILE_NAME)) as ledger:
        yield JobStore(ledger, CONFIG, accounting=False)


def holding(key: str, gpus: int) -> JobStatus:
    """A job that runs on the first node."""
    return changed(
        pending(key),
        state=JobState.RUNNING,
        start_s=1000.0,
        allocation={"n1": Amount({"": gpus}, gpus)},
    )


def nominate(job_store: JobStore, key: str, free_s: float | None = 2000.0) -> None:
    """Nominate job 7 for two GPUs of the first node at 2000; None: they are not free yet."""
    needs_victims = free_s != 2000.0
    job_store.lifecycles.nomination_event(
        key, Nominated(2000.0, allocation_text(ON_N1), needs_victims)
    )
    if needs_victims and free_s is not None:
        job_store.lifecycles.nomination_event(
            key, StillWaiting(free_s, Blocker.NOTHING, 60.0, "", "")
        )


def reviewed(job_store: JobStore, free_s: float | None, *others: JobStatus) -> Nomination | None:
    """Return job 7's nomination after a review."""
    seen = Observation(2001.0, (pending("7"), *others), TWO_NODES, ())
    job_store.observe(seen)
    nominate(job_store, "7", free_s)
    # Reviewing sends no query to Slurm.
    Actor(UnderWay(cast(Slurm, None), job_store, CONFIG, 0.0)).review(seen)
    return job_store.lifecycles.nominations.get("7")


def test_a_nomination_on_idle_gpus_is_withdrawn_when_they_are_taken(job_store: JobStore) -> None:
    assert reviewed(job_store, 2000.0, holding("8", 3)) is None


def test_a_nomination_on_idle_gpus_lasts_while_they_are_free(job_store: JobStore) -> None:
    nomination = known(reviewed(job_store, 2000.0, holding("8", 2)))
    assert nomination.allocation != ""


@pytest.mark.parametrize("free_s", [None, 2000.5])
def test_a_nomination_with_victims_may_expire(job_store: JobStore, free_s: float | None) -> None:
    """Otherwise its job would be nominated again, and more jobs would be preempted for it."""
    nomination = known(reviewed(job_store, free_s, holding("8", 4)))
    assert nomination.allocation != ""


def looked_at_by_review(job_store: JobStore, nominations: int) -> int:
    """Count the job states that a review looks at, with this many nominations and 400 jobs."""
    looks = 0

    class CountedJob(JobStatus):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == "state"
            return super().__getattribute__(name)

    waiting = (pending(str(number)) for number in range(1, 401))
    fields = {field.name for field in dataclasses.fields(JobStatus) if field.init}
    jobs = tuple(CountedJob(**{name: getattr(job, name) for name in fields}) for job in waiting)
    seen = Observation(2001.0, jobs, TWO_NODES, ())
    job_store.observe(seen)
    for number in range(1, nominations + 1):
        nominate(job_store, str(number))
    looks = 0
    Actor(UnderWay(cast(Slurm, None), job_store, CONFIG, 0.0)).review(seen)
    assert job_store.accounts.of("1") is not None
    return looks


def test_a_review_looks_at_each_job_only_a_few_times(job_store: JobStore) -> None:
    with_one = looked_at_by_review(job_store, nominations=1)
    assert looked_at_by_review(job_store, nominations=200) <= with_one + 5 * 200


def test_a_nomination_waits_while_a_job_on_its_nodes_completes(job_store: JobStore) -> None:
    completing = changed(holding("8", 2), state=JobState.COMPLETING)
    asked, free = reviewed(job_store, None, completing), reviewed(job_store, None, holding("9", 2))
    assert asked is not None
    assert asked.free_s is None
    assert free is not None
    assert free.free_s == 2001.0


@pytest.mark.parametrize(
    ("reason", "tried"),
    [
        ("Resources", True),
        ("Priority", False),
        ("None", False),
        ("Licenses", False),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", True),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", False),
        ("ReqNodeNotAvail, UnavailableNodes:", False),
        ("ReqNodeNotAvail, May be reserved for other job", True),
        ("ReqNodeNotAvail, Reserved for maintenance", False),
    ],
)
def test_a_reason_due_to_the_own_nomination_is_lack_of_resources(reason: str, tried: bool) -> None:
    """Slurm tries the job for one partition, and then withholds its nodes when it tries the
    other."""
    waits = changed(pending(), reason=reason, required_node_list="n[1-2]")
    of_two = changed(waits, partitions=("gpu", "other"))
    assert lacks_only_resources(of_two) is tried
    assert not (tried and why_not_eligible(of_two, 2000.0))
    assert lacks_only_resources(waits) is (reason == "Resources")


def test_a_reason_caused_by_the_nomination_is_recognized_with_magnetic_reservations_too() -> None:
    reason = "ReqNodeNotAvail, UnavailableNodes:n[1-2]"
    waits = changed(pending(), reason=reason, required_node_list="n[1-2]")
    assert lacks_only_resources(waits, tried_later=True)
    assert not why_not_eligible(waits, 2000.0, tried_later=True)
    assert not lacks_only_resources(changed(waits, required_node_list=""), tried_later=True)


def test_a_job_excluded_by_a_reservation_is_not_eligible() -> None:
    waits = changed(pending(), reason="ReqNodeNotAvail, May be reserved for other job")
    assert why_not_eligible(waits, 2000.0) == waits.reason
    assert why_not_eligible(changed(waits, required_node_list="n1"), 2000.0) == waits.reason


@pytest.mark.parametrize(
    ("limit_s", "kept_off"), [(600.0, {"n2"}), (3600.0, {"n1", "n2"}), (None, {"n1", "n2"})]
)
def test_a_job_avoids_nodes_reserved_before_it_could_end(
    job_store: JobStore, limit_s: float | None, kept_off: set[str]
) -> None:
    reservations = (
        Reservation("soon", frozenset({"n1"}), 3000.0, 4000.0),
        Reservation("now", frozenset({"n2"}), 1000.0, 4000.0),
        Reservation("over", frozenset({"n3"}), 1000.0, 2000.0),
    )
    waits = changed(pending(), time_limit_s=limit_s)
    seen = Observation(2001.0, (waits, holding("8", 1)), TWO_NODES, (), reservations)
    job_store.observe(seen)
    waiting, running = fed(Feed(job_store, CONFIG), seen).jobs
    assert waiting.request.reserved_nodes == kept_off
    assert running.request.reserved_nodes == frozenset()


def test_a_jobs_reason_holds_until_slurm_has_tried_it_again(job_store: JobStore) -> None:
    view = Feed(job_store, CONFIG)

    def why_not(at_s: float, **changes: object) -> str:
        seen = Observation(at_s, (changed(pending(), **changes),), TWO_NODES, ())
        job_store.observe(seen)
        [job] = fed(view, seen).jobs
        return job.not_eligible

    assert why_not(1000, reason="Dependency") == "Dependency"
    # A priority was written.
    assert why_not(1010, reason="None") == why_not(1020, reason="None") == "Dependency"
    assert why_not(1030, reason="Priority") == ""
    assert why_not(1040, reason="None") == ""
    # Reasons set by users end when users remove them.
    assert why_not(1050, reason="JobHeldUser", priority=0) == "JobHeldUser"
    assert why_not(1060, reason="None") == ""
    assert why_not(1070, reason="BeginTime", eligible_s=1075.0) == "BeginTime"
    assert why_not(1080, reason="None", eligible_s=1075.0) == ""


WAITING_REASONS = [
    "AccountNotAllowed",
    "AccountingPolicy",
    "AssocGrpGRES",
    "AssociationJobLimit",
    "BadConstraints",
    "BurstBufferResources",
    "BurstBufferStageIn",
    "BurstBufferOperation",
    "Cleaning",
    "Constraints",
    "DeadLine",
    "Dependency",
    "DependencyNeverSatisfied",
    "FedJobLock",
    "InvalidAccount",
    "InvalidQOS",
    "JobArrayTaskLimit",
    "JobHeldAdmin",
    "JobHeldUser",
    "JobHoldMaxRequeue",
    "Licenses",
    "MaxGRESPerAccount",
    "MaxGRESRunMinsPerUser",
    "MaxMemPerLimit",
    "MaxPoweredUpNodes",
    "MpiPortsBusy",
    "NvidiaImexChannels",
    "PartitionConfig",
    "PartitionDown",
    "PartitionInactive",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "Prolog",
    "QOSGrpGRES",
    "QOSNotAllowed",
    "QOSUsageThreshold",
    "Reservation",
    "ReservationDeleted",
    "ReservationInvalid",
    "SchedDefer",
]
"""Why jobs wait in 22.05 to 26.05 (src/common/job_state_reason.c), one of each group of limits."""


@pytest.mark.parametrize("reason", WAITING_REASONS)
def test_slurms_reason_beyond_resources_keeps_a_job_waiting_and_is_shown(reason: str) -> None:
    waits = changed(pending(), reason=reason)
    assert why_not_eligible(waits, 2000.0) == reason
    assert not lacks_only_resources(waits)
    assert slurm_reason_text(reason).startswith(f"{reason} (")


def test_a_reason_that_no_known_release_gives_keeps_a_job_waiting_and_is_shown() -> None:
    waits = changed(pending(), reason="TooManyMoons")
    assert why_not_eligible(waits, 2000.0) == "TooManyMoons"
    assert not lacks_only_resources(waits)
    assert slurm_reason_text("TooManyMoons") == "TooManyMoons"
