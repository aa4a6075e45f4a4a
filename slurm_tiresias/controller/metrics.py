"""The controller's metrics, for Prometheus.

Counters are updated by the thread that runs the cycles; gauges are computed on request from the
last published state. A scrape therefore costs a cycle nothing and never reaches Slurm.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter as Tallied
from collections.abc import Iterable, Iterator
from operator import attrgetter

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as Family

from slurm_tiresias import __version__
from slurm_tiresias.controller import metric_definitions as definitions
from slurm_tiresias.controller.cycle import Cycle
from slurm_tiresias.core.features.gauges import GAUGES
from slurm_tiresias.errors import TiresiasError, kinds
from slurm_tiresias.model import JobState, ProgressSource
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Cluster
from slurm_tiresias.slurm.tally import COMMANDS, Tally
from slurm_tiresias.status.published import PublishedState
from slurm_tiresias.store.records import LOST_PARTS
from slurm_tiresias.web.http import Answer

Values = Iterable[tuple[tuple[str, ...], float]]
"""Label values, each with the value of its metric."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text format that every version of Prometheus reads."""

FRESH_S = 1.0

_decision = attrgetter("action", "reason")


class Metrics:
    """All metrics, counted from the start of this process."""

    def __init__(self, cluster: Cluster, config: Config, asked: Tally) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._config = config
        self._asked = asked
        self._started_s = self._good_s = time.time()
        self._state: PublishedState | None = None
        self._trouble = ""
        self._decided: Tallied[tuple[str, str]] = Tallied()
        self._about = (
            *(cluster.name, __version__, ".".join(map(str, cluster.version))),
            *(config.policy.name, config.policy.order),
        )
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._count_up_from_zero()
        self._writing = threading.Lock()
        self._page = Answer(CONTENT_TYPE, b"")
        self._written_s = -math.inf

    def _count_up_from_zero(self) -> None:
        """Create series at zero: Prometheus misses the first increment of a new series."""
        tiers = [str(tier) for tier in range(self._config.policy.tier_count)]
        self._cycles = self._counter(definitions.CYCLES)
        self._failed = self._counter(definitions.FAILED_CYCLES, kinds())
        self._decisions = self._counter(definitions.DECISIONS)
        self._preemptions = self._counter(definitions.PREEMPTIONS)
        self._measured = self._counter(definitions.MEASURED, definitions.SETTLED)
        self._lost = self._counter(definitions.LOST, LOST_PARTS)
        self._promotions = self._counter(definitions.PROMOTIONS)
        self._events = self._counter(definitions.JOB_EVENTS, definitions.EVENTS)
        self._writes = self._counter(definitions.WRITES)
        self._refused = self._counter(definitions.REFUSED_WRITES)
        self._accounting = self._counter(definitions.ACCOUNTING_FAILURES)
        self._unpublished = self._counter(definitions.UNPUBLISHED)
        self._cycle_s = self._histogram(definitions.CYCLE_SECONDS)
        self._phase_s = self._histogram(definitions.PHASE_SECONDS, definitions.PHASES)
        self._jct_s = self._histogram(definitions.COMPLETION_SECONDS, tiers)
        self._queued_s = self._histogram(definitions.QUEUEING_SECONDS, tiers)

    def _counter(self, metric: definitions.Metric, values: Iterable[str] = ()) -> Counter:
        counter = Counter(metric.name, metric.doc, tuple(metric.labels), registry=self._registry)
        for value in values:
            counter.labels(value)
        return counter

    def _histogram(self, metric: definitions.Metric, values: Iterable[str] = ()) -> Histogram:
        histogram = Histogram(
            *(metric.name, metric.doc, tuple(metric.labels)),
            buckets=metric.buckets_s,
            registry=self._registry,
        )
        for value in values:
            histogram.labels(value)
        return histogram

    # Called by the controller

    def stands_by(self) -> None:
        """The controller stands by from now on."""
        self._state = None

    def acts(self, state: PublishedState) -> None:
        """The controller acts from now on; no cycle has finished yet."""
        self._trouble = ""
        self._decided = Tallied()
        self._good_s = time.time()
        self.show(state)

    def show(self, state: PublishedState) -> None:
        """Compute gauges from this state from now on."""
        self._state = state

    def not_published(self) -> None:
        self._unpublished.inc()

    def failed(self, error: TiresiasError) -> None:
        """Count a failed cycle."""
        self._trouble = error.kind
        self._failed.labels(error.kind).inc()

    def cycled(self, cycle: Cycle, state: PublishedState, publish_s: float) -> None:
        """Count a cycle that has just succeeded."""
        with self._writing:  # so that a scrape has either all numbers of a cycle or none
            self._count(cycle, state, publish_s)

    def _count(self, cycle: Cycle, state: PublishedState, publish_s: float) -> None:
        self._trouble = ""
        self._good_s = time.time()
        self._cycles.inc()
        self._writes.inc(cycle.outcome.writes)
        self._refused.inc(len(cycle.outcome.failures))
        self._accounting.inc(cycle.stats.accounting_failures)
        took = cycle.took
        parts = (took.observe_s, took.account_s, took.decide_s, took.act_s, publish_s)
        for phase, part_s in zip(definitions.PHASES, parts, strict=True):
            self._phase_s.labels(phase).observe(part_s)
        self._cycle_s.observe(took.all_s + publish_s)
        self._decided = Tallied(map(_decision, state.jobs))
        for decision, jobs in self._decided.items():
            self._decisions.labels(*decision).inc(jobs)
        self._note(cycle)

    def _note(self, cycle: Cycle) -> None:
        for kind, times in cycle.stats.events.items():
            if kind == "preempted":
                self._preemptions.inc(times)
            elif kind == "promoted":
                self._promotions.inc(times)
            else:
                self._events.labels(kind).inc(times)
        for cost in cycle.stats.costs:
            self._measured.labels(cost.source).inc()
            for part in LOST_PARTS:
                self._lost.labels(part).inc(cost.gpus * (getattr(cost, f"{part}_s") or 0.0))
        for job in cycle.stats.ended:
            self._jct_s.labels(str(job.tier)).observe(job.jct_s)
            self._queued_s.labels(str(job.tier)).observe(job.queued_s)

    # Called for requests

    def page(self) -> Answer:
        """Return all metrics as text, generated at most once a second."""
        with self._writing:
            if time.monotonic() - self._written_s > FRESH_S:
                self._page = Answer(CONTENT_TYPE, generate_latest(self._registry))
                self._written_s = time.monotonic()
            return self._page

    def collect(self) -> Iterator[Family]:
        """Yield the metrics that are not counted here: of the last state, and of the driver."""
        state = self._state
        mode = state.mode if state else definitions.STANDBY
        yield _gauge(definitions.INFO, [(self._about, 1)])
        yield _gauge(definitions.STARTED, [((), self._started_s)])
        yield _gauge(definitions.MODE, [((one,), one == mode) for one in definitions.MODES])
        yield _gauge(definitions.INTERVAL, [((), self._config.controller.interval_s)])
        yield from self._of_driver()
        trouble = self._trouble if state else ""
        yield _gauge(definitions.TROUBLE, [((kind,), kind == trouble) for kind in kinds()])
        if state:
            yield _gauge(definitions.LAST_CYCLE, [((), self._good_s)])
            yield _gauge(definitions.DECIDED, self._decided.items())
            yield from _of_state(state)

    def _of_driver(self) -> Iterator[Family]:
        asked = self._asked.by_command
        requests, failures = definitions.REQUESTS, definitions.COMMAND_FAILURES
        yield _counter(requests, [((name,), asked[name].requests) for name in COMMANDS])
        yield _counter(failures, [((name,), asked[name].failures) for name in COMMANDS])
        seconds = definitions.COMMAND_SECONDS
        family = SummaryMetricFamily(seconds.name, seconds.doc, labels=tuple(seconds.labels))
        for name in COMMANDS:
            family.add_metric((name,), asked[name].commands, asked[name].took_s)
        yield family


def _of_state(state: PublishedState) -> Iterator[Family]:
    next_try_s = max(0.0, state.next_try_s - time.time()) if state.next_try_s else 0.0
    yield _gauge(definitions.FAILED_IN_A_ROW, [((), state.failures)])
    yield _gauge(definitions.NEXT_TRY, [((), next_try_s)])
    yield _gauge(definitions.WARNING, [((), bool(state.warning))])
    yield _gauge(definitions.TERM, [((), state.term)])
    yield _gauge(definitions.STANDBYS, [((), len(state.standbys))])
    suspects = sum(node.is_suspect for node in state.nodes)
    yield _gauge(definitions.SUSPECTED_NODES, [((), suspects)])
    yield _gauge(definitions.GPUS, [((use,), getattr(state.gpus, use)) for use in definitions.USES])
    yield from _of_tiers(state)
    yield from _of_progress(state)
    yield _gauge(definitions.UNMANAGED, [((), sum(not job.managed for job in state.jobs))])


def _of_tiers(state: PublishedState) -> Iterator[Family]:
    of_states = [(t, name) for t in state.tiers for name in definitions.STATES]
    jobs = [((str(t.tier), name), getattr(t, f"{name}_jobs")) for t, name in of_states]
    gpus = [((str(t.tier), name), getattr(t, f"{name}_gpus")) for t, name in of_states]
    yield _gauge(definitions.JOBS, jobs)
    yield _gauge(definitions.JOB_GPUS, gpus)
    attained_gpu_s = {t.tier: 0.0 for t in state.tiers}
    longest_s = dict(attained_gpu_s)
    for job in state.jobs:
        if job.tier is not None:
            attained_gpu_s[job.tier] += job.attained_gpu_s
            if job.reason in definitions.LACKS_ROOM:
                longest_s[job.tier] = max(longest_s[job.tier], job.waited_s)
    yield _gauge(definitions.ATTAINED, [((str(tier),), s) for tier, s in attained_gpu_s.items()])
    yield _gauge(definitions.LONGEST_WAIT, [((str(tier),), s) for tier, s in longest_s.items()])


def _of_progress(state: PublishedState) -> Iterator[Family]:
    running = [j for j in state.jobs if j.managed and j.state == JobState.RUNNING.value]
    sources = dict.fromkeys((*(source.value for source in ProgressSource), "none"), 0)
    for job in running:
        sources[job.progress.source if job.progress else "none"] += 1
    quiet = sum(
        job.progress is not None and job.progress.quiet_since_s is not None for job in running
    )
    yield _gauge(definitions.PROGRESS, [((name,), n) for name, n in sources.items()])
    yield _gauge(definitions.QUIET, [((), quiet)])
    for metric, gauge in zip(definitions.OF_FEATURES, GAUGES, strict=True):
        facts = [fact for job in state.jobs if (fact := getattr(job, gauge.fact)) is not None]
        sums = {value: sum(map(of, facts)) for value, of in gauge.of.items()}
        yield _gauge(metric, [((value,) if value else (), one) for value, one in sums.items()])


def _gauge(metric: definitions.Metric, values: Values) -> Family:
    family = GaugeMetricFamily(metric.name, metric.doc, labels=tuple(metric.labels))
    for labels, value in values:
        family.add_metric(labels, float(value))
    return family


def _counter(metric: definitions.Metric, values: Values) -> Family:
    family = CounterMetricFamily(metric.name, metric.doc, labels=tuple(metric.labels))
    for labels, value in values:
        family.add_metric(labels, value)
    return family
