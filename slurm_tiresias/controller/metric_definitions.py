"""The definition of every metric of the controller, with its meaning.

docs/reference/metrics.md is generated from it (``scripts/dev generate``), and ``metrics.py``
exports no other metric. Labels have few values and contain no text from users: they identify
neither jobs nor users nor accounts.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurm_tiresias.controller.cycle import ENFORCE, PAUSED, SHADOW
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
    "gave-up",
    "list-refused",
    "signal-refused",
    "no-net-progress",
    "admitted",
    "gpus-idle",
    "idle-told",
    "idle-requeued",
    "idle-stays",
    "failed",
    "would",
    "released",
    "paused",
    "resumed",
)
"""Kinds of events that have no metric of their own."""

SETTLED = tuple(source.value for source in CostSource if source is not CostSource.AWAITED)
LACKS_ROOM = frozenset({"no-room", "guarded", "given-up", "over-budget"})
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
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets_s: tuple[float, ...] = ()


TIER = {"tier": "0, the highest, to the last"}
STATE = {"state": " or ".join(STATES)}
KIND = {"kind": ", ".join(kinds())}
DECISION = {
    "action": "run-on, start, preempt, wait, leave",
    "reason": "the code that `explain` shows, such as no-room",
}
COMMAND = {"command": ", ".join(COMMANDS)}


def _gauge(name: str, doc: str, labels: Mapping[str, str] | None = None) -> Metric:
    return Metric(name, Kind.GAUGE, doc, labels or {})


def _counter(name: str, doc: str, labels: Mapping[str, str] | None = None) -> Metric:
    return Metric(name, Kind.COUNTER, doc, labels or {})


INFO = _gauge(
    "tiresias_controller_info",
    "Always 1; the labels say what runs.",
    {
        "cluster": "the name of the cluster",
        "version": "of this program",
        "slurm_version": "of slurmctld when the controller started",
        "policy": "policy.name",
        "order": "policy.order",
    },
)
STARTED = _gauge("tiresias_start_timestamp_seconds", "When this process started.")
MODE = _gauge("tiresias_mode", "1 for the mode it is in, 0 for others.", {"mode": ", ".join(MODES)})
INTERVAL = _gauge("tiresias_interval_seconds", "Time between two cycles (controller.interval_s).")
LAST_CYCLE = _gauge(
    "tiresias_last_cycle_timestamp_seconds",
    "When the last good cycle ended, or this controller began to act: `time()` less this is the "
    "age of all that it shows.",
)
FAILED_IN_A_ROW = _gauge(
    "tiresias_consecutive_failed_cycles", "Cycles that have failed since the last good one."
)
TROUBLE = _gauge("tiresias_trouble", "1 for what the last cycle failed of, 0 for others.", KIND)
NEXT_TRY = _gauge(
    "tiresias_next_try_seconds",
    "Time until the next try, if the last cycle failed; 0 otherwise.",
)
WARNING = _gauge(
    "tiresias_warning",
    "1 while `status` shows a warning though cycles go well: a managed partition is gone, say.",
)
TERM = _gauge("tiresias_term", "The number of its lease; 0 where no other controller may stand by.")
STANDBYS = _gauge("tiresias_standbys", "Controllers that stand by for this one.")
GPUS = _gauge(
    "tiresias_gpus",
    "GPUs of the nodes of the managed partitions. down: on nodes that start nothing.",
    {"use": ", ".join(USES)},
)
JOBS = _gauge("tiresias_jobs", "Managed jobs.", TIER | STATE)
JOB_GPUS = _gauge("tiresias_job_gpus", "GPUs that these hold, or ask for.", TIER | STATE)
ATTAINED = _gauge(
    "tiresias_attained_gpu_seconds",
    "Service that the managed jobs which run or wait have attained in all.",
    TIER,
)
LONGEST_WAIT = _gauge(
    "tiresias_longest_wait_seconds",
    "The longest that a managed job now waits which lacks nothing but GPUs.",
    TIER,
)
PROGRESS = _gauge(
    "tiresias_progress_jobs",
    "Running jobs that are managed, by where it is known from how far they are.",
    {"source": "reports, output, comment, or none"},
)
QUIET = _gauge(
    "tiresias_quiet_jobs",
    "Running jobs that are managed and have made no step for unusually long.",
)
STUCK = _gauge(
    "tiresias_stuck_jobs",
    "Jobs that run or wait, are managed, and have kept nothing of what their last two runs did, by "
    "their own account.",
)
BOUND = _gauge(
    "tiresias_bound_jobs",
    "Jobs at the bound on their slowdown (policy.max_slowdown), so that they go before all others, "
    "and runs near it, which are not preempted.",
    {"standing": "at-bound or kept"},
)
IDLE_GPU_JOBS = _gauge(
    "tiresias_idle_gpu_jobs",
    "Running jobs, also those left to Slurm, that have used none of their GPUs for "
    "idle_gpus.after_s.",
)
IDLE_GPUS_HELD = _gauge(
    "tiresias_idle_gpus_held",
    "GPUs that jobs hold and do not use now, as far as the nodes tell.",
)
UNMANAGED = _gauge("tiresias_unmanaged_jobs", "Jobs that run or wait and are left to Slurm.")
DECIDED = _gauge("tiresias_decided_jobs", "Jobs by what the last cycle decided.", DECISION)

CYCLES = _counter("tiresias_cycles_total", "Good cycles.")
FAILED_CYCLES = _counter("tiresias_failed_cycles_total", "Cycles that were given up.", KIND)
DECISIONS = _counter(
    "tiresias_decisions_total", "Decisions: one for each job in each good cycle.", DECISION
)
PREEMPTIONS = _counter("tiresias_preemptions_total", "Preemptions that Slurm was seen to do.")
MEASURED = _counter(
    "tiresias_measured_preemptions_total",
    "Preemptions by where it is known from what they cost. silent: not known, as the job tells "
    "nothing; ended: not known, as the job ended too soon. They are counted once that is settled.",
    {"source": ", ".join(SETTLED)},
)
LOST = _counter(
    "tiresias_preemption_lost_gpu_seconds_total",
    "GPU time that these lost, as far as it is known. save: to write the checkpoint that was asked "
    "for; leave: until the last process was gone; again: for work that was done again; restart: to "
    "the first new step.",
    {"part": ", ".join(LOST_PARTS)},
)
PROMOTIONS = _counter("tiresias_promotions_total", "Jobs that were let start afresh.")
JOB_EVENTS = _counter(
    "tiresias_job_events_total",
    "Other things that happened. gave-up: a nomination expired; repaired: something else had "
    "changed what was written; failed: Slurm refused a write; list-refused: Slurm held the job for "
    "the nodes named for it; signal-refused: Slurm refused a "
    "checkpoint signal; admitted: a job at a prompt came to go first; requeued: not by the "
    "controller; node-failed: so, because its node failed; idle-requeued: by the controller, for "
    "idle GPUs and for no other job; idle-told: before that, told to save and to leave; "
    "idle-stays: it used a GPU before it left; "
    "would: what shadow mode would do.",
    {"event": ", ".join(EVENTS)},
)
WRITES = _counter("tiresias_writes_total", "Changes that cycles sent to Slurm.")
REFUSED_WRITES = _counter("tiresias_refused_writes_total", "Of these, what Slurm refused.")
ACCOUNTING_FAILURES = _counter(
    "tiresias_accounting_failures_total",
    "Questions that accounting did not answer. Cycles go on meanwhile.",
)
UNPUBLISHED = _counter(
    "tiresias_unpublished_states_total", "States that could not be written for `status`."
)
REQUESTS = _counter(
    "tiresias_slurm_requests_total",
    "What Slurm's daemons were asked: each line given to scontrol, each job given to scancel, "
    "each list that pyslurm loads, each job that it modifies, and each call of another command is "
    "one. Some are several RPCs.",
    COMMAND,
)
COMMAND_FAILURES = _counter(
    "tiresias_slurm_command_failures_total",
    "Commands that did not answer in time, or could not be started.",
    COMMAND,
)

COMMAND_SECONDS = Metric(
    "tiresias_slurm_command_seconds",
    Kind.SUMMARY,
    "How long Slurm's commands, and questions to pyslurm, took: how many, and their sum.",
    COMMAND,
)

CYCLE_SECONDS = Metric(
    "tiresias_cycle_seconds",
    Kind.HISTOGRAM,
    "How long good cycles took, from the first question to what is published.",
    buckets_s=CYCLE_BUCKETS_S,
)
PHASE_SECONDS = Metric(
    "tiresias_phase_seconds",
    Kind.HISTOGRAM,
    "How long their parts took.",
    {"phase": ", ".join(PHASES)},
    CYCLE_BUCKETS_S,
)
COMPLETION_SECONDS = Metric(
    "tiresias_job_completion_seconds",
    Kind.HISTOGRAM,
    "JCT: from its submission to its end, of each managed job that ran and is over, whatever it "
    "ended of, by its last tier.",
    TIER,
    JOB_BUCKETS_S,
)
QUEUEING_SECONDS = Metric(
    "tiresias_job_queueing_seconds",
    Kind.HISTOGRAM,
    "How much of that the same jobs did not run: they waited, before their first start and after "
    "each preemption.",
    TIER,
    JOB_BUCKETS_S,
)

METRICS: tuple[Metric, ...] = (
    *(INFO, STARTED, MODE, INTERVAL, LAST_CYCLE, FAILED_IN_A_ROW, TROUBLE, NEXT_TRY, WARNING),
    *(TERM, STANDBYS, GPUS, JOBS, JOB_GPUS, ATTAINED, LONGEST_WAIT, PROGRESS, QUIET),
    *(STUCK, BOUND, IDLE_GPU_JOBS, IDLE_GPUS_HELD, UNMANAGED, DECIDED),
    *(CYCLES, FAILED_CYCLES, DECISIONS, PREEMPTIONS, MEASURED, LOST, PROMOTIONS),
    *(JOB_EVENTS, WRITES),
    *(REFUSED_WRITES, ACCOUNTING_FAILURES, UNPUBLISHED, REQUESTS, COMMAND_FAILURES),
    *(COMMAND_SECONDS, CYCLE_SECONDS, PHASE_SECONDS, COMPLETION_SECONDS, QUEUEING_SECONDS),
)


def reference_lines() -> Iterator[str]:
    """Generate the page docs/reference/metrics.md."""
    yield "# Metrics"
    yield ""
    yield "What the controller tells Prometheus at `/metrics`, where `http.listen` is set"
    yield "([monitor.md](../how-to/monitor.md)). This page is the output of"
    yield "`tiresias-slurm metrics --reference`; without the option it prints the values."
    yield ""
    yield "No label holds a word that a user wrote. Jobs, users and accounts are not told apart, so"
    yield "the number of series is bounded. Counters and histograms begin at zero with each"
    yield "process. A controller that stands by shows no gauges of jobs and cycles."
    yield ""
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for metric in METRICS:
        labels = "; ".join(f"`{label}`: {values}" for label, values in metric.labels.items())
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} |"
