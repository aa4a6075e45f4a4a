"""What a job's partitions would start, and therefore what a requeue would cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.job_views import changed
from slurm_tiresias.config import parse
from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import Amount, JobState, JobStatus, Node, Protection
from slurm_tiresias.slurm.protocol import Observation, Partition
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from tests.controller.fed import fed
from tests.controller.test_job_store import pending

CONFIG = parse({"manage": {"partitions": ["gpu", "other"]}})
N1 = frozenset({"n1"})
OTHER = Partition("other", N1, up=True)

REFUSING = [
    {"up": False},
    {"most_nodes": 1},
    {"longest_s": 600.0},
    {"accounts": frozenset({"physics"})},
    {"denied_accounts": frozenset({"biology"})},
    {"qos": frozenset({"long"})},
    {"denied_qos": frozenset({"normal"})},
]


@pytest.fixture
def job_store(tmp_path: Path) -> Iterator[JobStore]:
    with closing(Ledger(tmp_path / FILE_NAME)) as ledger:
        yield JobStore(ledger, CONFIG, accounting=False)


def asking(**facts: Any) -> JobStatus:
    """A job of at least two nodes and twenty minutes."""
    asked = {"account": "biology", "qos": "normal", "time_limit_s": 1200.0}
    job = changed(pending(), **{**asked, **facts})
    request = replace(job.spec.request, min_nodes=2, partitions=job.spec.partitions)
    return changed(job, request=request)


def viewed(job_store: JobStore, job: JobStatus, *partitions: Partition) -> Job:
    seen = Observation(2000.0, (job,), (), partitions)
    job_store.observe(seen)
    (view,) = fed(Feed(job_store, CONFIG), seen).jobs
    return view


@pytest.mark.parametrize("limits", REFUSING)
def test_a_running_job_that_its_partition_would_not_restart_is_protected(
    job_store: JobStore, limits: dict[str, Any]
) -> None:
    runs = asking(
        state=JobState.RUNNING, start_s=1000.0, allocation={"n1": Amount({"": 1}, cpus=1)}
    )
    assert viewed(job_store, runs, Partition("gpu", N1, True), OTHER).protected_by is None
    limited = Partition("gpu", N1, **{"up": True, **limits})
    assert viewed(job_store, runs, limited, OTHER).protected_by is Protection.PARTITION


@pytest.mark.parametrize("limits", REFUSING)
def test_a_waiting_job_is_placed_only_where_a_partition_would_start_it(
    job_store: JobStore, limits: dict[str, Any]
) -> None:
    waits = asking(partitions=("gpu", "other"))
    limited = Partition("gpu", N1, **{"up": True, **limits})
    assert viewed(job_store, waits, limited, OTHER).request.partitions == ("other",)
    # If none would start it, Slurm shows the reason.
    only = asking(partitions=("gpu",))
    assert viewed(job_store, only, limited, OTHER).request.partitions == ("gpu",)


def test_a_job_without_an_account_or_qos_or_limit_is_not_refused(job_store: JobStore) -> None:
    limited = Partition(
        "gpu", N1, True, longest_s=60.0, accounts=frozenset({"a"}), qos=frozenset({"b"})
    )
    waits = asking(partitions=("gpu", "other"), account="", qos="", time_limit_s=None)
    assert viewed(job_store, waits, limited, OTHER).request.partitions == ("gpu", "other")


@pytest.mark.parametrize(
    ("bounds", "asked", "most"),
    [((2, 2), None, 2), ((2, 4), None, 4), ((2, None), None, None), ((4, 4), 3, 3), ((3, 3), 8, 3)],
)
def test_a_job_uses_no_more_nodes_than_the_limit_of_its_widest_partition(
    job_store: JobStore, bounds: tuple[int | None, int | None], asked: int | None, most: int | None
) -> None:
    gpu, other = (
        Partition(name, N1, True, most_nodes=bound)
        for name, bound in zip(("gpu", "other"), bounds, strict=True)
    )
    waits = asking(partitions=("gpu", "other"))
    waits = changed(waits, request=replace(waits.spec.request, max_nodes=asked))
    assert viewed(job_store, waits, gpu, other).request.max_nodes == most


def test_jobs_of_a_partition_use_at_most_its_cpus_per_node(job_store: JobStore) -> None:
    """A partition that may use eight of sixteen CPUs; the rest belongs to other jobs."""
    ours = asking(state=JobState.RUNNING, start_s=1.0, allocation={"n1": Amount({"": 1}, cpus=3)})
    theirs = changed(
        pending("8"),
        partitions=("cpu",),
        state=JobState.RUNNING,
        start_s=1.0,
        allocation={"n1": Amount({}, cpus=6)},
    )
    total = Amount({"": 4}, cpus=16, memory_mb=8000)
    nodes = tuple(Node(name, total, frozenset({"gpu", "cpu"})) for name in ("n1", "n2"))
    gpu = Partition("gpu", frozenset({"n1", "n2"}), True, most_cpus_per_node=8)
    seen = Observation(2000.0, (ours, theirs), nodes, (gpu,))
    job_store.observe(seen)
    view = Feed(job_store, CONFIG)
    shown = fed(view, seen).nodes
    assert [node.total.cpus for node in shown] == [14, 8]
    again = fed(view, replace(seen, nodes=tuple(map(replace, nodes)))).nodes
    assert all(one is other for one, other in zip(shown, again, strict=True))


def test_a_bound_on_shared_cpus_of_partitions_is_left_to_slurm(job_store: JobStore) -> None:
    nodes = (Node("n1", Amount({"": 4}, cpus=16), frozenset({"gpu", "other"})),)
    gpu = Partition("gpu", N1, True, most_cpus_per_node=8)
    seen = Observation(2000.0, (asking(),), nodes, (gpu, OTHER))
    job_store.observe(seen)
    assert fed(Feed(job_store, CONFIG), seen).nodes == nodes
