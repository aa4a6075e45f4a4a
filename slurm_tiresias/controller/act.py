"""Carry out a plan: what is written to Slurm, in which order, and how the answers are handled.

Every intent is in the ledger before it is sent to Slurm. First the preemptor gets its priority and
its nodes; then its victims get their checkpoint signals and their graces; then they are requeued,
together, as soon as each has saved or its grace is over; and once they are pending again, their
start times are set, since Slurm would otherwise delay them by two minutes. A job that is preempted
for its idle GPUs has no preemptor, and is requeued alone. ``core/lifecycle`` has the states of each
start and each preemption. The effects of their transitions are carried out in ``acting``, and each
answer of Slurm is the next event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.controller.acting.drain import cleared, drains, weights
from slurm_tiresias.controller.acting.intents import record
from slurm_tiresias.controller.acting.requeue import SIGNALLED, requeue, restart
from slurm_tiresias.controller.acting.restart import restarts, returns
from slurm_tiresias.controller.acting.review import backoffs, review
from slurm_tiresias.controller.acting.send import keys_of, send
from slurm_tiresias.controller.acting.signal import Signaller
from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.acting.updates import Updates
from slurm_tiresias.controller.feed import Backoffs
from slurm_tiresias.core.features.bad_nodes import BadNodes
from slurm_tiresias.core.lifecycle.preemption import StoodDown
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.model import Plan
from slurm_tiresias.slurm.hostlist import task_keys
from slurm_tiresias.slurm.protocol import Observation, Write, WriteFailure


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """The outcome of acting in one cycle."""

    writes: int
    failures: tuple[WriteFailure, ...]
    unsettled: bool
    """Whether a start or preemption is under way, so that the next cycle should come soon."""

    def raise_for_failures(self) -> None:
        """Raise ``TiresiasError`` if Slurm refused a write to a job that has not ended."""
        refused = [failure for failure in self.failures if not failure.has_ended]
        if refused:
            first = refused[0]
            raise TiresiasError(
                f"Slurm refused {len(refused)} of {self.writes} changes, the first for job "
                f"{first.write.key}: {first.message}",
                "Try again; what was refused stands as it was",
            )


class Actor:
    """Turns plans into writes. The only part of the controller that changes anything in Slurm."""

    def __init__(self, under_way: UnderWay) -> None:
        self._under_way = under_way
        self._job_store = under_way.job_store
        self._updates = Updates(under_way)
        self._signaller = Signaller(under_way)

    @property
    def awaits_saves(self) -> bool:
        """Whether a victim that reports has been signalled and has not been requeued yet."""
        signalled = self._under_way.preemptions(SIGNALLED)
        return any(self._under_way.progress_of(one.key) for one in signalled)

    def review(self, seen: Observation) -> Backoffs:
        """Review the starts and preemptions under way; return which jobs back off."""
        self._under_way.follow(seen)
        review(self._under_way)
        self._signaller.review()
        return backoffs(self._under_way, self._signaller.awaited_limits)

    def carry_out(
        self, plan: Plan, seen: Observation, bad_nodes: BadNodes | None = None
    ) -> WriteSummary:
        """Write everything in which Slurm differs from the plan, and drain suspected nodes."""
        self._under_way.follow(seen)
        self._under_way.suspects = bad_nodes.last_resort if bad_nodes else ()
        record(self._under_way, plan)
        updates = [*self._updates.to_plan(plan), *restart(self._under_way)]
        updates += returns(self._under_way)
        failures = send(self._under_way, updates)
        self._drop_refused(keys_of(failures))
        # Preempt only now, and only for jobs whose priority Slurm has accepted, and which it has
        # since tried to start and found to lack only resources.
        told = {key for update in updates for key in task_keys(update.key)}
        # Signal before the commit: a second signal costs the victim nothing, but a victim that the
        # ledger wrongly records as signalled would be requeued without having saved its state.
        self._signaller.dump(self._under_way.to_dump())
        self._signaller.signal(plan, told)
        due = [*requeue(self._under_way, plan), *restarts(self._under_way)]
        if bad_nodes and not self._job_store.nodes.may_not_be_set:
            due += weights(self._under_way, bad_nodes.last_resort)
            due += drains(self._under_way, bad_nodes)
        failures += send(self._under_way, due)
        return WriteSummary(
            len(updates) + len(due), failures, not self._job_store.lifecycles.is_settled
        )

    def clear(self, node: str, seen: Observation, bad_nodes: BadNodes) -> WriteSummary:
        """Clear a node of suspicion, and return it to service if it was drained for that."""
        self._under_way.follow(seen)
        return self._sent(cleared(self._under_way, bad_nodes, node))

    def stand_down(self, seen: Observation) -> WriteSummary:
        """Stop acting: restore node lists, drop intents, and let requeued jobs start again."""
        self._under_way.follow(seen)
        for victim in list(self._job_store.lifecycles.preemptions):
            self._under_way.tell(victim, StoodDown())
        for nominated in list(self._job_store.lifecycles.nominations):
            self._under_way.withdraw(nominated)
        may_not = self._job_store.nodes.may_not_be_set
        own_weights = () if may_not else weights(self._under_way, ())
        return self._sent([*self._updates.to_own_lists(), *restart(self._under_way), *own_weights])

    def take_lists_back(self, seen: Observation) -> WriteSummary:
        """Restore users' node lists before the controller stops.

        Starts and preemptions under way stay in the ledger for the next controller.
        """
        self._under_way.follow(seen)
        return self._sent(self._updates.to_own_lists())

    def hand_back(self, seen: Observation) -> WriteSummary:
        """Hand every job back to Slurm, without anything that was written to it."""
        stood_down = self.stand_down(seen)
        handed_back = self._sent(self._updates.to_slurms_own())
        refused = keys_of(handed_back.failures)
        for account in list(self._job_store.accounts.all.values()):
            if account.key not in refused:
                forgotten = replace(account, written_priority=None, written_site_factor=None)
                self._job_store.accounts.put(forgotten)
        text = f"{handed_back.writes} jobs handed back to Slurm"
        self._job_store.events.note(seen.at_s, "handed-back", "", text)
        self._job_store.commit()
        writes = stood_down.writes + handed_back.writes
        return WriteSummary(writes, (*stood_down.failures, *handed_back.failures), unsettled=False)

    def _drop_refused(self, refused: set[str]) -> None:
        """Set no GPUs aside for jobs whose priority was refused (one was just held, say)."""
        for one in self._under_way.preemptions(for_job=True):
            if one.preemptor in refused:
                self._under_way.call_off(one.key)
        for key in refused & self._job_store.lifecycles.nominations.keys():
            self._under_way.withdraw(key)

    def _sent(self, writes: Sequence[Write]) -> WriteSummary:
        return WriteSummary(len(writes), send(self._under_way, writes), unsettled=False)
