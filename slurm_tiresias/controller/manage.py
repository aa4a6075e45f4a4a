"""Which jobs are managed."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_tiresias.errors import ConfigError
from slurm_tiresias.model import JobSpec, JobStatus
from slurm_tiresias.settings.manage import ManageConfig
from slurm_tiresias.slurm.protocol import Observation, Partition


def missing_partitions(seen: Observation, config: ManageConfig) -> list[str]:
    """Return the managed partitions that the cluster does not have."""
    known = {partition.name for partition in seen.partitions}
    return [name for name in config.partitions if name not in known]


def no_such_partitions(missing: list[str], seen: Observation) -> ConfigError:
    """Return the error that names the missing partitions and those that exist."""
    known = sorted(partition.name for partition in seen.partitions)
    return ConfigError(
        f"manage.partitions names {', '.join(missing)}, which this cluster does not have",
        f"Name some of: {', '.join(known)}",
    )


def check_partitions(seen: Observation, config: ManageConfig) -> None:
    """Raise ``ConfigError`` if the cluster has none of the managed partitions."""
    missing = missing_partitions(seen, config)
    if len(missing) == len(config.partitions):
        raise no_such_partitions(missing, seen)


def why_unmanaged(job: JobStatus, config: ManageConfig, started_managed: bool = False) -> str:
    """Why a job is not managed, in a few words; "" for a managed job.

    A reservation is ignored for a job that ``started_managed``, because its owner can name one
    while it runs.
    """
    spec = job.spec
    foreign = [name for name in spec.partitions if name not in config.partitions]
    checks = (
        (bool(job.unreadable), job.unreadable),
        (bool(foreign), f"partition {', '.join(foreign)} is not managed"),
        (spec.request.chunk.gpu_count == 0, "asks for no GPUs"),
        (spec.het, "part of a heterogeneous job"),
        (bool(spec.reservation) and not started_managed, f"runs in reservation {spec.reservation}"),
        (f"user={spec.user}" in config.exclude, "its user is excluded"),
        (f"account={spec.account}" in config.exclude, "its account is excluded"),
        (f"qos={spec.qos}" in config.exclude, "its QOS is excluded"),
    )
    return next((reason for applies, reason in checks if applies), "")


def shares_managed_nodes(
    spec: JobSpec, partitions: Iterable[Partition], config: ManageConfig
) -> bool:
    """Whether a job may run on nodes of managed partitions; true if a partition is not known."""
    nodes = {one.name: one.nodes for one in partitions}
    managed = frozenset[str]().union(*(nodes.get(name, ()) for name in config.partitions))
    return not all(name in nodes and managed.isdisjoint(nodes[name]) for name in spec.partitions)
