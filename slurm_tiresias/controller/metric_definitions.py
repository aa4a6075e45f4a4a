"""The definition of every metric of the controller, with its meaning.

docs/reference/metrics.md is generated from it (``scripts/dev generate``), and ``metrics.py``
exports no other metric. Labels have few values and contain no text from users: they identify
neither jobs nor users nor accounts.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from slurm_tiresias.controller.cycle import ENFORCE, PAUSED, SHADOW
from slurm_tiresias.core.features.gauges import GAUGES
from slurm_tiresias.errors import kinds
from slurm_tiresias.slurm.tally import COMMANDS
from slurm_tiresias.store.records import LOST_PARTS, CostSource

STANDBY = "standby"
MODES = (ENFORCE, SHADOW, PAUSED, STANDBY)
PHASES = ("observe", "account", "decide", "act", "publish")
USES = ("managed", "others", "idle", "down")
STATES = ("running", "pending")
EVENTS = (
    "demoted",
    "requeued",
    "node-failed",
    "repaired",
    "unpinned",
    "backed-off",
    "list-refused",
    "signal-refused",
    "no-net-progress",
    "admitted",
    "gpus-idle",
    "idle-signalled",
    "idle-requeued",
    "idle-spared",
    "hung",
    "hung-false",
    "hung-dumped",
    "hung-signalled",
    "hung-requeued",
    "hung-spared",
    "failed",
    "would",
    "handed-back",
    "paused",
    "resumed",
    "boosted",
    "restarted",
    "not-restarted",
    "node-suspected",
    "node-drained",
    "node-cleared",
)
"""Kinds of events without a separate metric."""

SETTLED = tuple(source.value for source in CostSource if source is not CostSource.AWAITED)
LACKS_ROOM = frozenset({"no-room", "protected", "backs-off", "over-budget"})
"""Reasons of jobs that lack only GPUs."""

CYCLE_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
JOB_BUCKETS_S = (
    *(10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
    *(3600.0, 7200.0, 14_400.0, 28_800.0, 86_400.0, 172_800.0, 604_800.0, 2_592_000.0),
)
"""Histogram buckets from ten seconds to thirty days."""


class Kind(enum.Enum):
    """Prometheus's types of metrics."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; ``labels`` describes the values of each label."""

    name: str
    kind: Kind
    doc: str
    labels: Mapping[str, str]
    buckets_s: tuple[float, ...]


TIER = {"tier": "0 (the highest) to the last"}
STATE = {"state": " or ".join(STATES)}
KIND = {"kind": ", ".join(kinds())}
DECISION = {
    "action": "run-on, start, preempt, wait, leave",
    "reason": "the code that `explain` shows, such as no-room",
}
COMMAND = {"command": ", ".join(COMMANDS)}


METRICS: list[Metric] = []
"""All metrics, in the order of their definitions below."""

NO_LABELS: Mapping[str, str] = {}


def _metric(
    kind: Kind,
    name: str,
    doc: str,
    labels: Mapping[str, str] = NO_LABELS,
    buckets_s: tuple[float, ...] = (),
) -> Metric:
    METRICS.append(Metric(name, kind, doc, labels, buckets_s))
    return METRICS[-1]


_gauge, _counter = partial(_metric, Kind.GAUGE), partial(_metric, Kind.COUNTER)
_summary, _histogram = partial(_metric, Kind.SUMMARY), partial(_metric, Kind.HISTOGRAM)


INFO = _gauge(
    "tiresias_controller_info",
    "Always 1; the labels describe the controller.",
    {
        "cluster": "the name of the cluster",
        "version": "of this program",
        "slurm_version": "of slurmctld when the controller started",
        "policy": "policy.name",
        "order": "policy.order",
    },
)
STARTED = _gauge("tiresias_start_timestamp_seconds", "When this process started.")
MODE = _gauge(
    "tiresias_mode", "1 for the current mode, 0 for the others.", {"mode": ", ".join(MODES)}
)
INTERVAL = _gauge("tiresias_interval_seconds", "Time between two cycles (controller.interval_s).")
LAST_CYCLE = _gauge(
    "tiresias_last_cycle_timestamp_seconds",
    "When the last successful cycle ended, or this controller began to act; `time()` minus this "
    "is the age of all gauges.",
)
FAILED_IN_A_ROW = _gauge(
    "tiresias_consecutive_failed_cycles", "Failed cycles since the last successful one."
)
TROUBLE = _gauge(
    "tiresias_trouble", "1 for the cause of the last cycle's failure, 0 for the others.", KIND
)
NEXT_TRY = _gauge(
    "tiresias_next_try_seconds",
    "Time until the next attempt if the last cycle failed; otherwise 0.",
)
WARNING = _gauge(
    "tiresias_warning",
    "1 while `status` shows a warning although cycles succeed, e.g. a missing partition.",
)
TERM = _gauge(
    "tiresias_term", "Number of the lease, which grows with each takeover; 0 without standby."
)
STANDBYS = _gauge("tiresias_standbys", "Standby controllers.")
SUSPECTED_NODES = _gauge(
    "tiresias_suspected_nodes", "Nodes suspected to be bad, which are used only last."
)
GPUS = _gauge(
    "tiresias_gpus",
    "GPUs of the nodes of the managed partitions. down: on nodes where no job can start.",
    {"use": ", ".join(USES)},
)
JOBS = _gauge("tiresias_jobs", "Managed jobs.", TIER | STATE)
JOB_GPUS = _gauge("tiresias_job_gpus", "GPUs that managed jobs hold or request.", TIER | STATE)
ATTAINED = _gauge(
    "tiresias_attained_gpu_seconds",
    "Attained service of the running and waiting managed jobs.",
    TIER,
)
LONGEST_WAIT = _gauge(
    "tiresias_longest_wait_seconds",
    "Longest current wait of a managed job that waits only for GPUs.",
    TIER,
)
PROGRESS = _gauge(
    "tiresias_progress_jobs",
    "Running managed jobs by the source of their progress.",
    {"source": "reports, output, comment, or none"},
)
QUIET = _gauge(
    "tiresias_quiet_jobs", "Running managed jobs whose last step was unusually long ago."
)
OF_FEATURES = tuple(_gauge(gauge.name, gauge.doc, gauge.labels) for gauge in GAUGES)
UNMANAGED = _gauge("tiresias_unmanaged_jobs", "Running and waiting jobs that are not managed.")
DECIDED = _gauge("tiresias_decided_jobs", "Jobs by the last cycle's decision.", DECISION)

CYCLES = _counter("tiresias_cycles_total", "Successful cycles.")
FAILED_CYCLES = _counter("tiresias_failed_cycles_total", "Failed cycles.", KIND)
DECISIONS = _counter(
    "tiresias_decisions_total", "Decisions, one for each job in each successful cycle.", DECISION
)
PREEMPTIONS = _counter("tiresias_preemptions_total", "Preemptions that Slurm carried out.")
MEASURED = _counter(
    "tiresias_measured_preemptions_total",
    "Preemptions by the source of their cost. silent: unknown, the job reports nothing; ended: "
    "unknown, the job ended too soon. Counted once the source is known.",
    {"source": ", ".join(SETTLED)},
)
LOST = _counter(
    "tiresias_preemption_lost_gpu_seconds_total",
    "GPU time lost by preemptions, as far as it is known. save: writing the requested checkpoint; "
    "leave: from then until the last process had exited; again: work done again; restart: until "
    "the first new step.",
    {"part": ", ".join(LOST_PARTS)},
)
PROMOTIONS = _counter("tiresias_promotions_total", "Jobs promoted to the top tier.")
JOB_EVENTS = _counter(
    "tiresias_job_events_total",
    "Other events. backed-off: a nomination expired; repaired: a value that the controller wrote "
    "was changed, and is written again; failed: Slurm refused a write; list-refused: Slurm held "
    "the job because of its node list; signal-refused: Slurm refused a checkpoint signal; "
    "admitted: a job at a prompt entered the top tier; requeued: not by the controller; "
    "node-failed: requeued because its node failed; idle-signalled, idle-requeued, idle-spared: a "
    "job was signalled for its idle GPUs, was requeued for them, or used a GPU before that; hung-: "
    "the same for a job without progress; hung-dumped: its stacks were asked for; hung-false: it "
    "went on; would: a decision of shadow mode; restarted, not-restarted: a run failed.",
    {"event": ", ".join(EVENTS)},
)
WRITES = _counter("tiresias_writes_total", "Changes sent to Slurm.")
REFUSED_WRITES = _counter("tiresias_refused_writes_total", "Changes that Slurm refused.")
ACCOUNTING_FAILURES = _counter(
    "tiresias_accounting_failures_total", "Queries that accounting did not answer. Cycles continue."
)
UNPUBLISHED = _counter(
    "tiresias_unpublished_states_total", "Failures to write the published state for `status`."
)
REQUESTS = _counter(
    "tiresias_slurm_requests_total",
    "Requests to Slurm's daemons: each line given to scontrol, each job given to scancel, each "
    "list that pyslurm loads, each job that it modifies, and each other command. Some are several "
    "RPCs.",
    COMMAND,
)
COMMAND_FAILURES = _counter(
    "tiresias_slurm_command_failures_total",
    "Commands that timed out or could not be started.",
    COMMAND,
)

COMMAND_SECONDS = _summary(
    "tiresias_slurm_command_seconds", "Duration of Slurm's commands and pyslurm's calls.", COMMAND
)

CYCLE_SECONDS = _histogram(
    "tiresias_cycle_seconds",
    "Duration of successful cycles, from the first query to publishing.",
    buckets_s=CYCLE_BUCKETS_S,
)
PHASE_SECONDS = _histogram(
    "tiresias_phase_seconds",
    "Duration of each phase of a successful cycle.",
    {"phase": ", ".join(PHASES)},
    CYCLE_BUCKETS_S,
)
COMPLETION_SECONDS = _histogram(
    "tiresias_job_completion_seconds",
    "Job completion time (submission to end) of managed jobs that ran, by last tier.",
    TIER,
    JOB_BUCKETS_S,
)
QUEUEING_SECONDS = _histogram(
    "tiresias_job_queueing_seconds",
    "Part of the completion time in which the job did not run, before its first start and after "
    "each preemption.",
    TIER,
    JOB_BUCKETS_S,
)
