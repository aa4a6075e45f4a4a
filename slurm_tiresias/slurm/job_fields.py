"""What a driver has read of one job: numbers, times and names, whatever they were read from.

The command driver fills it from squeue's text, the pyslurm driver from pyslurm's own numbers.
``observed_jobs.py`` makes the observed job of it and reads no text.
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
"""What each of Slurm's words for a job's state means here; None: the job has ended.

Slurm says COMPLETING both of a job that has ended and of one that was requeued and waits for its
epilog: neither holds GPUs in Slurm's books, and their nodes start nothing.
"""

NO_NUMBER = 4294967294
"""How Slurm itself says so (slurm.h, NO_VAL), and shows of jobs cancelled in time."""


NO_GPUS: GpuCounts = MappingProxyType({})


class Options(NamedTuple):
    """What was asked for by the options that only squeue shows.

    GPUs by type; ``memory_per_gpu_mb`` in MiB. Both counts by the GPU are 0 where not asked.
    """

    cpus_per_task: int = 1
    gpus_per_job: GpuCounts = NO_GPUS
    gpus_per_node: GpuCounts = NO_GPUS
    gpus_per_socket: GpuCounts = NO_GPUS
    gpus_per_task: GpuCounts = NO_GPUS
    cpus_per_gpu: int = 0
    memory_per_gpu_mb: int = 0
    not_modelled: tuple[str, ...] = ()
    """sbatch's names for what was asked for and that placement knows nothing of."""
    licenses: str = ""
    """As their user wrote them."""
    deadline_s: float | None = None
    unreadable: str = ""
    """Which of them could not be read, in a few words; it then counts as not asked for."""


NO_OPTIONS = Options()


class JobFields(NamedTuple):
    """One job, or one task of an array, as Slurm shows it: nothing is concluded from it yet.

    Where Slurm shows no value it is None, 0 for counts that were not asked for, and "" for text.
    What could not be read has such a value, too, and ``unreadable`` says which that was.
    """

    key: str
    """How Slurm's commands address it."""
    raw_id: int
    array_id: int | None
    """None of a job that is in no array."""
    state: JobState | None
    """By ``STATES``: a word that no known release has neither starts nor preempts the job."""
    slurm_state: str
    priority: int
    restarts: int
    batch: bool
    requeue: bool
    het: bool
    submit_s: float
    eligible_s: float | None
    start_s: float | None
    """Of a pending job a forecast."""
    end_s: float | None
    """Of a running job when its time limit ends it."""
    elapsed_s: float
    time_limit_s: float | None
    nodes: int
    """Of a pending job the least number of nodes, or Slurm's estimate."""
    most_nodes: int | None
    cpus: int
    cpus_per_node: int
    tasks: int
    tasks_per_node: int
    sockets_per_node: int
    memory_mb: int
    """In MiB, for each CPU or each node."""
    exclusive: bool
    required_node_list: str
    """As Slurm wrote it."""
    required_nodes: tuple[str, ...]
    allocated_nodes: tuple[str, ...]
    options: Options
    tres_nodes: int | None
    """This and the next two: Slurm's own sum of what is allocated, or else requested."""
    tres_memory_mb: int | None
    tres_gpus: GpuCounts | None
    """None where the sum has no GPUs in it, as where Slurm does not count them."""
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
    """As the commands print it; a name may be their word for nothing."""
    unreadable: str = ""
    """What of the job cannot be read, in a few words; "" where all can."""
    unreadable_sum: str = ""
    """The same of ``tres_memory_mb``, which is needed only where nothing better is known."""
