"""Why jobs wait: the reason for each equivalence class whose jobs do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import NamedTuple

from slurm_tiresias.core.cluster import ClusterState, EquivalenceClass
from slurm_tiresias.core.features.protections import protection_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.placement.free_resources import NO_SHORTAGE, Shortage
from slurm_tiresias.core.placement.node_set import NodeSet
from slurm_tiresias.core.placement.victims import PreemptionPlan
from slurm_tiresias.core.rank import Key, UniqueRank
from slurm_tiresias.model import (
    MAX_BLOCKERS,
    Amount,
    Protection,
    Reason,
    Request,
)
from slurm_tiresias.settings import Config


class Why(NamedTuple):
    """Why the jobs of a class wait."""

    reason: Reason
    detail: str = ""
    blockers: tuple[tuple[str, Protection], ...] = ()


Runner = tuple[UniqueRank, Job]


class WhyJobsWait:
    """The reason of each class, as of its last refusal."""

    def __init__(self, state: ClusterState, config: Config) -> None:
        self._state = state
        self._config = config
        self._now_s = 0.0
        self._known: dict[EquivalenceClass, Why] = {}
        self.changed: set[EquivalenceClass] = set()
        """Classes whose reason has changed since ``begin`` was called."""
        self._running: Sequence[Runner] = ()
        self._foreign: Sequence[Job] = ()
        self._by_id: dict[str, Job] = {}
        self._on_node: dict[str, list[Runner]] | None = None

    def follow(self, running: Sequence[Runner], foreign: Sequence[Job]) -> None:
        """Set the running jobs: managed ones in rank order, and unmanaged ones."""
        self._running, self._foreign, self._on_node = running, foreign, None
        self._by_id = {job.job_id: job for _, job in running}

    def begin(self, now_s: float) -> None:
        """Begin a new decision at this time."""
        self._now_s = now_s
        self.changed = set()

    def of(self, job_class: EquivalenceClass) -> Why:
        """Return why the jobs of a refused class wait."""
        return self._known[job_class]

    def note(
        self, job_class: EquivalenceClass, rank: UniqueRank, too_many: PreemptionPlan | None
    ) -> None:
        """Record why a class is refused; ``too_many`` is a plan that exceeds the victim limit."""
        why = self._why(job_class, rank.level, too_many)
        before = self._known.get(job_class)
        if before != why:
            self._known[job_class] = why
            if before is not None:
                self.changed.add(job_class)

    def _why(self, job_class: EquivalenceClass, level: Key, too_many: PreemptionPlan | None) -> Why:
        request, node_index = job_class.request, self._state.node_index
        if too_many:
            blockers = [
                (candidate.job_id, Protection.MAX_VICTIMS) for candidate in too_many.victims
            ]
            return Why(Reason.PROTECTED, blockers=tuple(blockers[:MAX_BLOCKERS]))
        if node_index.could_hold(request, node_index.usable):
            if request.gpus_vary:
                detail = f"only Slurm can tell how many GPUs {request.opaque} gives it"
                return Why(Reason.NO_ROOM, f"{detail}, so no job is preempted for it")
            if job_class.only_idle:
                return Why(Reason.IDLE_ONLY)
            return self._what_is_in_the_way(job_class, level)
        unreserved = replace(request, reserved_nodes=frozenset())
        if request.reserved_nodes and node_index.could_hold(unreserved, node_index.usable):
            return Why(Reason.RESERVED)
        if node_index.could_hold(unreserved):
            return Why(Reason.NO_NODES, "the nodes it needs are unavailable")
        if request.opaque:
            # The parts of the request that were not understood may be why it seems not to fit.
            return Why(Reason.NO_ROOM, f"it asks for {request.opaque}, which only Slurm can place")
        if request.cpus_vary and node_index.could_hold(_gpus_only(unreserved)):
            return Why(Reason.NO_ROOM, "only Slurm can tell how its tasks fit on several nodes")
        where = ", ".join(request.partitions) or "any partition"
        detail = f"asks for more than the nodes of {where} have"
        if any(self._state.free.topology.layout(request, nodes) for nodes in job_class.sets):
            detail = f"asks for more nodes together than the blocks or switches of {where} have"
        if not node_index.sets_for(unreserved):
            detail = f"no node of {where} may serve it"
        return Why(Reason.NEVER_FITS, detail)

    def _what_is_in_the_way(self, job_class: EquivalenceClass, level: Key) -> Why:
        state = self._state
        if state.may_have_room(job_class, level, even_protected=True):
            preemption = state.by_preempting(job_class, level, even_protected=True)
            if preemption is not None:
                # These victims would suffice if some of them were not protected.
                ids = [candidate.job_id for candidate in preemption.victims]
                protections = [
                    (job_id, self._protection(self._by_id[job_id], level)) for job_id in ids
                ]
                blockers = [
                    (job_id, protection) for job_id, protection in protections if protection
                ]
                return Why(Reason.PROTECTED, blockers=tuple(blockers[:MAX_BLOCKERS]))
        level = state.level_above_victims(level)
        holders = islice(self._holders(job_class, level), MAX_BLOCKERS)
        return Why(Reason.NO_ROOM, blockers=tuple(holders))

    def _protection(self, job: Job, level: Key) -> Protection | None:
        return protection_of(job, self._now_s, self._config, level)

    def _holders(self, job_class: EquivalenceClass, level: Key) -> Iterator[tuple[str, Protection]]:
        """Yield the jobs that hold resources the class lacks: managed ones first, in rank order."""
        lacks = self._shortages(job_class, level)
        is_running = self._state.is_running
        for rank, job in self._running:
            if self._is_on(job_class.nodes, job) and is_running(job.job_id):
                below = rank.level > level or not job.is_preemptible
                protection = self._protection(job, level) if below else Protection.NEAR_TIER
                if protection and _holds_any(job, lacks):
                    yield job.job_id, protection
        for job in self._foreign:
            if self._is_on(job_class.nodes, job) and _holds_any(job, lacks):
                yield job.job_id, Protection.UNMANAGED

    def _shortages(self, job_class: EquivalenceClass, level: Key) -> Callable[[str], Shortage]:
        """Return a function that gives the shortage on a node once all candidates have left it."""
        state = self._state
        if self._on_node is None:
            self._on_node = {}
            for runner in self._running:
                for node in runner[1].allocation:
                    self._on_node.setdefault(node, []).append(runner)
        on_node = self._on_node

        @cache
        def on(node: str) -> Shortage:
            if not state.free.nodes((node,)) & job_class.nodes:
                return NO_SHORTAGE
            leaving = (
                job.allocation[node]
                for rank, job in on_node.get(node, ())
                if rank.level > level
                and not self._protection(job, level)
                and state.is_running(job.job_id)
            )
            return state.free.shortage(node, job_class.request, leaving)

        return on

    def _is_on(self, nodes: NodeSet, job: Job) -> bool:
        return bool(self._state.free.nodes(job.allocation) & nodes)


def _gpus_only(request: Request) -> Request:
    return replace(request, chunk=Amount(request.chunk.gpus), per_node=Amount())


def _holds_any(job: Job, lacks: Callable[[str], Shortage]) -> bool:
    return any(lacks(node).is_eased_by(amount) for node, amount in job.allocation.items())
