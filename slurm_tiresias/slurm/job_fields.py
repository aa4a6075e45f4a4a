"""The parsed values of one job, independent of the driver: numbers, times and names.

``parse_jobs.py`` reads them from the rows of squeue, which the pyslurm driver writes as well.
``observed_jobs.py`` turns them into the observed job and parses no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from slurm_tiresias.model import GpuCounts, JobState

PENDING, RUNNING, COMPLETING = JobState.PENDING, JobState.RUNNING, JobState.COMPLETING

STATES: Mapping[str, JobState | None] = {
    "PENDING": PENDING,
    "REQUEUE_HOLD": PENDING,
    "SPECIAL_EXIT": PENDING,
    "RESV_DEL_HOLD": PENDING,
    "EXPEDITING": PENDING,
    "RUNNING": RUNNING,
    "CONFIGURING": RUNNING,
    "POWER_UP_NODE": RUNNING,
    "SUSPENDED": RUNNING,
    "STOPPED": RUNNING,
    "RESIZING": RUNNING,
    "SIGNALING": RUNNING,
    "COMPLETING": COMPLETING,
    "REQUEUED": COMPLETING,
    "STAGE_OUT": COMPLETING,
    "COMPLETED": None,
    "CANCELLED": None,
    "FAILED": None,
    "TIMEOUT": None,
    "NODE_FAIL": None,
    "PREEMPTED": None,
    "BOOT_FAIL": None,
    "DEADLINE": None,
    "OUT_OF_MEMORY": None,
    "LAUNCH_FAILED": None,
    "RECONFIG_FAIL": None,
    "REVOKED": None,
    "REQUEUE_FED": None,
}
"""The ``JobState`` for each of Slurm's job states; None if the job has ended.

COMPLETING covers both jobs that have ended and requeued jobs that wait for their epilog: Slurm
counts their GPUs as free, but their nodes start no jobs.
"""

NO_NUMBER = 4294967294
"""Slurm's value for "no number" (slurm.h, NO_VAL); also shown for jobs cancelled while pending."""


NO_GPUS: GpuCounts = MappingProxyType({})


class Options(NamedTuple):
    """The requested options that only squeue shows.

    GPUs are by type, ``memory_per_gpu_mb`` is in MiB. Both per-GPU values are 0 if not requested.
    """

    cpus_per_task: int = 1
    gpus_per_job: GpuCounts = NO_GPUS
    gpus_per_node: GpuCounts = NO_GPUS
    gpus_per_socket: GpuCounts = NO_GPUS
    gpus_per_task: GpuCounts = NO_GPUS
    cpus_per_gpu: int = 0
    memory_per_gpu_mb: int = 0
    segment: int = 0
    most_switches: int = 0
    whole_blocks: bool = False
    """``--exclusive=topo``."""
    not_modelled: tuple[str, ...] = ()
    """The sbatch options in the request that placement does not model."""
    licenses: str = ""
    """As the user wrote them."""
    deadline_s: float | None = None
    unreadable: str = ""
    """Which option could not be read, in a few words; it then counts as not requested."""


class JobFields(NamedTuple):
    """The values that Slurm shows for one job, or one task of an array, not yet interpreted.

    A missing value is None, 0 for counts that were not requested, or "" for text. So is a value
    that could not be read; ``unreadable`` then says which.
    """

    key: str
    """The job id in Slurm's commands."""
    raw_id: int
    array_id: int | None
    """None for a job outside any array."""
    state: JobState | None
    """By ``STATES``. An unknown word counts as COMPLETING, so the job is neither started nor
    preempted."""
    slurm_state: str
    priority: int
    restarts: int
    batch: bool
    requeue: bool
    het: bool
    submit_s: float
    eligible_s: float | None
    start_s: float | None
    """A forecast if the job is pending."""
    end_s: float | None
    """When the time limit will end it if the job is running."""
    elapsed_s: float
    time_limit_s: float | None
    nodes: int
    """For a pending job the minimum number of nodes, or Slurm's estimate."""
    most_nodes: int | None
    cpus: int
    cpus_per_node: int
    tasks: int
    tasks_per_node: int
    sockets_per_node: int
    memory_mb: int
    """In MiB, per CPU or per node."""
    exclusive: bool
    required_node_list: str
    """Verbatim from Slurm."""
    required_nodes: tuple[str, ...]
    allocated_nodes: tuple[str, ...]
    options: Options
    tres_nodes: int | None
    """This and the next two: Slurm's total of what is allocated or, before that, requested."""
    tres_memory_mb: int | None
    tres_gpus: GpuCounts | None
    """None if the total has no GPUs, for example because Slurm does not count them."""
    user: str
    account: str
    qos: str
    partitions: tuple[str, ...]
    reservation: str
    reason: str
    features: str
    wckey: str
    admin_comment: str
    comment: str
    name: str
    printed_name: str
    """The name as the commands print it, even if it is their word for "nothing"."""
    unreadable: str = ""
    """What could not be read, in a few words; "" if everything could."""
    unreadable_sum: str = ""
    """The same for ``tres_memory_mb``, which is needed only if nothing better is known."""
