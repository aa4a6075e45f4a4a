"""One cycle: observe, account, decide, act."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from slurm_tiresias.controller.act import Actor, WriteSummary
from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.claims import Claims
from slurm_tiresias.controller.crash import culprits
from slurm_tiresias.controller.drilled import DrilledPrograms
from slurm_tiresias.controller.feed import Backoffs, Feed
from slurm_tiresias.controller.job_store import CycleStats, JobStore
from slurm_tiresias.controller.manage import check_partitions
from slurm_tiresias.controller.past import LedgersPast
from slurm_tiresias.controller.preemption_costs import PreemptionCosts
from slurm_tiresias.controller.progress import ProgressTracker
from slurm_tiresias.controller.reconcile import Reconciler
from slurm_tiresias.controller.shadow import ShadowRecord
from slurm_tiresias.core.engine import Engine, decide
from slurm_tiresias.core.features import promotion
from slurm_tiresias.core.features.bad_nodes import BadNodes
from slurm_tiresias.core.features.hung import Hung
from slurm_tiresias.core.features.idle_gpus import IdleGpus
from slurm_tiresias.core.features.in_order import Features, make_features
from slurm_tiresias.core.features.make import learned_policy
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.victim_rate import CountedVictims
from slurm_tiresias.core.job import Snapshot
from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.errors import RefusedError
from slurm_tiresias.model import JobState, Plan
from slurm_tiresias.profiler.gpu_use_folder import GpuUseFolder
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.progress.folder import ProgressFolder
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import REPORTS
from slurm_tiresias.slurm.protocol import Cluster, Observation, Slurm
from slurm_tiresias.slurm.removed_nodes import RemovedNodes
from slurm_tiresias.status.published import ENFORCE as ENFORCE
from slurm_tiresias.status.shadow_comparison import SHADOW as SHADOW
from slurm_tiresias.status.shadow_comparison import remember_mode
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.retention import Retention
from slurm_tiresias.store.samples import Samples

PAUSED = "paused"

RUNS_ON = "it cannot be requeued now, or made a step"

NONE_LEFT_ALONE: Mapping[str, str] = MappingProxyType({})

HISTORY_EVERY_S = 300.0
"""How often a policy based on job history is made anew, in seconds: accounting corrects what it
learned at the end of each job."""


@dataclass(frozen=True, slots=True)
class Took:
    """How long each phase of a cycle took, in seconds."""

    observe_s: float
    account_s: float
    decide_s: float
    act_s: float

    @property
    def read_s(self) -> float:
        """The time until everything that the decision needs was known."""
        return self.observe_s + self.account_s

    @property
    def all_s(self) -> float:
        return self.read_s + self.decide_s + self.act_s


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle saw, decided and did."""

    seen: Observation
    snapshot: Snapshot
    plan: Plan
    policy: Policy
    outcome: WriteSummary
    took: Took
    stats: CycleStats


def collect_seldom() -> None:
    """Make the garbage collector of this whole process run less often.

    A cycle on a large cluster makes a million objects, nearly all of which are gone when it is
    over: with Python's default thresholds, collection takes up to half of the decision time.
    """
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


class Cycles:
    """Runs cycles over one ledger.

    Passes on the errors of the driver and the ledger. A failed cycle has acted on nothing that was
    uncertain; the next one starts from what Slurm shows.
    """

    def __init__(
        self,
        slurm: Slurm,
        cluster: Cluster,
        ledger: Ledger,
        config: Config,
        profiler: Profiler,
        left_alone: Mapping[str, str] = NONE_LEFT_ALONE,
        progress: ProgressFolder | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        drilled: DrilledPrograms | None = None,
        gpu_use: GpuUseFolder | None = None,
        removed: RemovedNodes | None = None,
    ) -> None:
        """Prepare cycles.

        ``left_alone`` maps jobs that must not be managed to the reason. ``progress`` is where nodes
        report the progress of jobs. ``meanwhile`` is called repeatedly in steps that may take long.
        ``drilled`` has the programs that have passed a drill.
        ``gpu_use`` is where nodes report the GPU use of jobs. ``removed`` follows slurm.conf.
        """
        self._removed = removed or RemovedNodes("")
        self._left_alone = left_alone
        self._progress_folder = progress or ProgressFolder("")
        self._gpu_use = gpu_use or GpuUseFolder(config.profiler.collect_dir)
        self._requeue_delay_s = cluster.requeue_delay_s
        self.seen: Observation | None = None
        """The observation of the present or the last cycle."""
        self._snapshot: Snapshot | None = None
        """The snapshot that is being decided on; None outside a decision."""
        self._slurm = slurm
        self._ledger = ledger
        self._config = config
        self._profiler = profiler
        self.job_store = JobStore(ledger, config, cluster.accounting)
        self._drilled = drilled or DrilledPrograms(ledger)
        self._samples = Samples(ledger, meanwhile)
        self.retention = Retention(ledger, config, self.job_store.accounts.ended)
        self._shadow = ShadowRecord(self.job_store)
        self._victims = CountedVictims(config)
        self._mode = ""
        self._begin()

    def _begin(self) -> None:
        """Build everything that has memory of its own, from the job store and the ledger."""
        config = self._config
        self.progress = ProgressTracker(self.job_store, self._progress_folder)
        self.costs = PreemptionCosts(self.job_store, self.progress)
        self._claims = None
        if REPORTS in config.policy.estimates:
            self._claims = Claims(self.job_store, self.progress)
        self._reconciler = Reconciler(self.job_store, self._slurm)
        self._feed = Feed(
            self.job_store,
            config,
            self._profiler.placing,
            self._claims.why_stopped if self._claims else None,
            self.progress,
            self.costs.costs_of,
        )
        idle_gpus, hung = IdleGpus(config), Hung(config)
        self.features = Features(idle_gpus=idle_gpus, hung=hung)

        def why_spared(key: str, cause: Cause) -> str:
            return idle_gpus.why_spared(key) if cause is Cause.IDLE_GPUS else RUNS_ON

        def ranks_last(key: str) -> bool:
            job = self._feed.jobs[key]
            return idle_gpus.ranks_last_anew(job) or job.waits_behind

        def goes_by_gpu_s(key: str) -> float | None:
            return self._policy.goes_by_gpu_s(self._feed.jobs[key]) if self._policy else None

        under_way = UnderWay(
            *(self._slurm, self.job_store, config, self._requeue_delay_s),
            progress_of=self.progress.of,
            reports_of=self.progress.past_runs,
            why_spared=why_spared,
            ranks_last=ranks_last,
            goes_by_gpu_s=goes_by_gpu_s,
            to_dump=lambda: hung.to_dump(self._feed.jobs),
        )
        self._actor = Actor(under_way)
        self._policy: Policy | None = None
        self._told: frozenset[str] = frozenset()
        """The jobs that the engine knows."""
        self._planned_at_s = -math.inf
        self._engine: Engine | None = None
        self._history_s = -HISTORY_EVERY_S

    def run(self, mode: str) -> Cycle:
        """Run one cycle in ``enforce``, ``shadow`` or ``paused`` mode."""
        began_s = time.monotonic()
        self.job_store.in_hand.clear()
        seen = self._observe()
        observed_s = time.monotonic()
        self._account(seen)
        if mode != self._mode:
            remember_mode(self._ledger, mode, seen.at_s)
            self._mode = mode
        accounted_s = time.monotonic()
        backoffs = self._actor.review(seen) if mode == ENFORCE else Backoffs()
        # A negative age means that the clock was set back: learn again in that case too.
        if self._policy is None or not 0 <= seen.at_s - self._history_s < HISTORY_EVERY_S:
            self._policy = learned_policy(
                self._config.policy, lambda: self._samples.latest(seen.at_s)
            )
            self._history_s = seen.at_s
        self._feed.follow(seen, backoffs)
        snapshot = self._snapshot = self._made_snapshot(seen.at_s)
        plan = self._plan(snapshot, self._policy, promotes=mode == ENFORCE)
        self._snapshot = None
        self._record(plan, snapshot, acts=mode == ENFORCE)
        decided_s = time.monotonic()
        if mode == ENFORCE:
            self._victims.count(plan, snapshot.recent_victims, self._feed.jobs, seen.at_s)
            outcome = self._actor.carry_out(plan, seen, self.features.bad_nodes)
            if self._actor.awaits_saves:
                self.progress.folder.look_soon()
        else:
            # Also in shadow mode: what was under way in enforce mode would stay so for good.
            outcome = self._actor.stand_down(seen)
            if mode == SHADOW:
                self._shadow.record(plan, seen.at_s)
        took = Took(
            observe_s=observed_s - began_s,
            account_s=accounted_s - observed_s,
            decide_s=decided_s - accounted_s,
            act_s=time.monotonic() - decided_s,
        )
        return Cycle(seen, snapshot, plan, self._policy, outcome, took, self.job_store.take_stats())

    def _made_snapshot(self, now_s: float) -> Snapshot:
        feed, idle_gpus, hung = self._feed, self.features.idle_gpus, self.features.hung
        recent = self._victims.without_spared(feed.jobs)
        self._gpu_use.background.step_unless_started()
        if self._config.idle_gpus.after_s > 0 and idle_gpus:
            recent = idle_gpus.hear(self._gpu_use.latest, feed.running, now_s, recent)
        if hung:
            recent = hung.hear(feed.jobs.values(), self._gpu_use.latest, now_s, recent)
        return Snapshot(now_s, feed.nodes, tuple(feed.jobs.values()), recent)

    def _plan(self, snapshot: Snapshot, policy: Policy, *, promotes: bool) -> Plan:
        # An engine that failed halfway is dropped: its state may match no observation.
        engine, self._engine = self._engine, None
        if engine is None or snapshot.now_s < self._planned_at_s:
            self.features = self._made_features(snapshot.now_s)
            in_order = self.features.in_order
            engine = Engine(policy, self._config, snapshot.nodes, features=in_order)
            self._told = frozenset()
        self._planned_at_s = snapshot.now_s
        engine.promotes = promotes
        self._tell(engine, snapshot, policy)
        # It keeps the policy that it has if the new one knows the same.
        self._policy = engine.policy
        plan = engine.plan(snapshot.now_s, snapshot.recent_victims)
        budget = self.features.budget
        self.job_store.users_over_budget = budget.users_over if budget else frozenset()
        self._feed.changed.clear()
        self._engine = engine
        return plan

    def _record(self, plan: Plan, snapshot: Snapshot, *, acts: bool) -> None:
        """Record what the core says is to be, and the tiers that it has decided."""
        now_s = snapshot.now_s
        for feature in self.features.in_order:
            self.job_store.record(feature.take_news(), now_s)
        for key in plan.promotions if acts else ():
            self.job_store.record(promotion.news_of(self._feed.jobs[key]), now_s)
        self.job_store.follow(plan, now_s, promotes=acts)

    def _made_features(self, now_s: float) -> Features:
        """Make the features of a new engine, with what the ledger has for them."""
        past = LedgersPast(self._config, now_s, self.job_store, self._drilled)
        partitions = self._config.manage.partitions
        return make_features(self._config, past, partitions=partitions, before=self.features)

    def _follow_ended_runs(self) -> None:
        """Tell the features which runs have ended or were corrected since the last commit."""
        for run in self.job_store.runs.changed:
            account = self.job_store.accounts.of(run.key)
            if account is not None and run.end_s is not None:
                for feature in self.features.in_order:
                    feature.run_ended(account, run)

    def _tell(self, engine: Engine, snapshot: Snapshot, policy: Policy) -> None:
        """Tell the engine what has changed since its last plan."""
        told, self._told = self._told, frozenset(self._feed.jobs)
        for key, ended in self.job_store.ends.in_order(told - self._told):
            engine.remove(key, ended)
        engine.set_nodes(snapshot.nodes, snapshot.now_s)
        engine.set_policy(policy, snapshot.now_s)
        for job in self.job_store.in_hand.each(snapshot.jobs):
            if job.job_id in self._feed.changed or job.job_id not in told:
                engine.update(job, snapshot.now_s)
            elif job.state is JobState.RUNNING:
                engine.served(job, snapshot.now_s)

    def take_lists_back(self) -> None:
        """Restore users' own node lists before the controller ends.

        A node list left on a waiting job could keep it from starting if the nodes change.
        """
        if any(record.written_nodes for record in self.job_store.accounts.all.values()):
            seen = self._observe()
            self._account(seen)
            self._actor.take_lists_back(seen)

    def hand_back(self) -> WriteSummary:
        """Give every managed job back to Slurm."""
        seen = self._observe()
        self._account(seen)
        return self._actor.hand_back(seen)

    def clear_node(self, name: str) -> None:
        """Clear a node of suspicion, and return it to service if it was drained for that."""
        seen = self._observe()
        if name not in {node.name for node in seen.nodes}:
            raise RefusedError(f"Slurm has no node {name}", "See: tiresias-slurm nodes")
        bad_nodes = self.features.bad_nodes or BadNodes()
        self._actor.clear(name, seen, bad_nodes).raise_for_failures()

    def culprits(self, meanwhile: Callable[[], None]) -> frozenset[str]:
        """Find the jobs that made the last decision fail; empty if something else failed."""
        snapshot, policy = self._snapshot, self._policy
        if snapshot is None or policy is None:
            return frozenset()
        return culprits(snapshot, lambda one: decide(one, policy, self._config), meanwhile)

    def _observe(self) -> Observation:
        self.seen = self._snapshot = None
        self._removed.have_changed()
        self.seen = self._removed.applied(self._slurm.observe())
        if self._left_alone:
            jobs = (
                replace(job, unreadable=self._left_alone.get(job.key, job.unreadable))
                for job in self.seen.jobs
            )
            self.seen = replace(self.seen, jobs=tuple(jobs))
        return self.seen

    def _account(self, seen: Observation) -> None:
        """Take an observation into the ledger, in steps whose order matters."""
        now_s = seen.at_s
        # Without any managed partition all jobs would look unmanaged: nothing is taken in.
        check_partitions(seen, self._config.manage)
        # A step of Slurm's clock shifts all earlier times before any is compared with new ones.
        if self.job_store.follow_clock(now_s, seen.steady_s):
            self._reconciler.begin_anew()
            self.retention.put_off(now_s)
        # All later steps read the accounts and the runs of this cycle.
        self.job_store.observe(seen)
        if self.job_store.reused:
            # Most memory is by job id. Begin as after a restart: the ledger has forgotten the jobs.
            self.job_store.commit()
            self._begin()
            self.job_store.reused.clear()
        # Accounting corrects runs, by which progress, costs and claims are measured.
        self._reconciler.reconcile(now_s)
        # What the jobs have reported, for the two that judge by it: costs and claims.
        self.progress.follow(seen)
        self.costs.follow(seen)
        if self._claims:
            self._claims.take(seen)
        self._drilled.follow(now_s)
        # Before the commit, after which it is forgotten which runs have changed.
        self._follow_ended_runs()
        # The ledger is written before anything is decided on.
        self.job_store.commit()
        # It reads what the ledger now has of the runs, and writes nothing to it.
        self._profiler.learn(seen, self.job_store.accounts.ran_s)
