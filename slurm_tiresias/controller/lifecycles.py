"""The starts and preemptions under way, and the books of preemptions: who was preempted for whom,
and at what cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from slurm_tiresias.controller.accounts import Accounts
from slurm_tiresias.controller.event_log import EventLog
from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.features.losses import (
    BUDGET_WINDOW_S,
    LEAVES_WITHIN_S,
    RecentLosses,
    late_s,
    losses_of,
)
from slurm_tiresias.core.lifecycle.nomination import NominationEvent, NoteExpired, VictimLeft
from slurm_tiresias.core.lifecycle.preemption import (
    BackOff,
    Cause,
    CountOwnRequeue,
    CountPreemption,
    MarkSignalled,
    NoteSignalRefused,
    NoteSpared,
    Preemption,
    PreemptionEvent,
    SendRequeue,
    SendSignal,
    SetStartTime,
    SignalExpired,
)
from slurm_tiresias.core.lifecycle.tracker import LifecycleTracker
from slurm_tiresias.model import JobAccount, JobStatus
from slurm_tiresias.progress.saving import asked
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.hostlist import folded
from slurm_tiresias.slurm.notation import node_names
from slurm_tiresias.store.changes import Changes
from slurm_tiresias.store.records import CostSource, PreemptionCost, PreemptionRecord

IDLE_SIGNALLED, IDLE_REQUEUED, IDLE_SPARED = "idle-signalled", "idle-requeued", "idle-spared"
HUNG_SIGNALLED, HUNG_REQUEUED, HUNG_SPARED = "hung-signalled", "hung-requeued", "hung-spared"
"""The events of a job that is signalled for its idle GPUs or because it hangs, is requeued for
that, or is spared."""


class _Books(NamedTuple):
    """How a preemption without a preemptor is recorded: its events, and fields of the account."""

    signalled: str
    requeued: str
    spared: str
    requeues: str
    signalled_run: str


OWN_BOOKS: Final[Mapping[Cause, _Books]] = {
    Cause.IDLE_GPUS: _Books(
        *(IDLE_SIGNALLED, IDLE_REQUEUED, IDLE_SPARED), "idle_requeues", "idle_signalled_run"
    ),
    Cause.HUNG: _Books(
        *(HUNG_SIGNALLED, HUNG_REQUEUED, HUNG_SPARED), "hung_requeues", "hung_signalled_run"
    ),
}

EffectToCarryOut = SendSignal | SendRequeue | SetStartTime | BackOff
"""The effects of a preemption that are left to the caller once the rest is in the books."""


class Lifecycles(LifecycleTracker):
    """Applies events to nominations and preemptions, and keeps the books of preemptions."""

    def __init__(
        self,
        changes: Changes,
        config: Config,
        accounts: Accounts,
        runs: Runs,
        events: EventLog,
        shown: Callable[[str], JobStatus | None],
    ) -> None:
        """``shown`` returns a job as it was last observed; None if it was not."""
        self._changes = changes
        self._ledger = ledger = changes.ledger
        self._config = config
        self._accounts = accounts
        self._runs = runs
        self._events = events
        self._shown = shown
        super().__init__(ledger.nominations.all(), ledger.preemptions_under_way.all())
        self.costs = Costs(changes, config)

    def nomination_event(self, key: str, event: NominationEvent) -> None:
        """Apply an event to a nomination; it is committed with the other changes."""
        for effect in self.apply_to_nomination(key, event):
            match effect:
                case NoteExpired(at_s, why):
                    self._events.note(at_s, "backed-off", key, why)

    def preemption_event(self, key: str, event: PreemptionEvent) -> Sequence[EffectToCarryOut]:
        """Apply an event to a preemption; it is committed with the other changes.

        What belongs into the books is noted; the other effects are returned.
        """
        others: list[EffectToCarryOut] = []
        for effect in self.apply_to_preemption(key, event):
            match effect:
                case NoteSignalRefused(at_s, text, preemptor):
                    self._events.note(at_s, "signal-refused", key, text, preemptor)
                case CountPreemption(at_s, of):
                    self._count_preemption(of, at_s)
                    self.nomination_event(of.preemptor, VictimLeft())
                case CountOwnRequeue(at_s, of):
                    self._count_own_requeue(of, at_s)
                case MarkSignalled(at_s, cause, heard):
                    self._mark_signalled(key, at_s, cause, heard=heard)
                case NoteSpared(at_s, cause, why):
                    self._events.note(at_s, OWN_BOOKS[cause].spared, key, why)
                case _:
                    others.append(effect)
        return others

    def expire_signal(self, key: str, at_s: float) -> None:
        """Forget the signal of a victim that is not leaving, if its own grace ended long before."""
        one = self.preemptions.get(key)
        if one is not None and (one.grace_until_s or 0.0) + LEAVES_WITHIN_S < at_s:
            self.preemption_event(key, SignalExpired())

    def forget(self, key: str) -> None:
        """Drop everything of a job whose id was given to another job."""
        super().forget(key)
        self.costs.forget(key)

    def save(self) -> None:
        """Add the changed states to what the next commit writes."""
        ledger, changes = self._ledger, self._changes
        changes.follow(ledger.nominations, self.take_changed_nominations())
        changes.follow(ledger.preemptions_under_way, self.take_changed_preemptions())

    # The books

    def _account(self, key: str) -> JobAccount:
        account = self._accounts.of(key)
        assert account is not None, f"job {key} is preempted without an account"
        return account

    def _count_preemption(self, of: Preemption, now_s: float) -> None:
        account = self._account(of.key)
        self._record_preemption(account, of, now_s)
        self._await_cost(account, of, now_s)
        self._note_loss(account, of, now_s)
        self._accounts.put(
            replace(
                account,
                preemptions=account.preemptions + 1,
                preempted_by=of.preemptor,
                preempted_at_s=account.queued_s,
            )
        )

    def _count_own_requeue(self, of: Preemption, now_s: float) -> None:
        """Record a requeue for no other job. It is charged to no preemptor and does not protect the
        job from preemption."""
        account, requeues = self._account(of.key), OWN_BOOKS[of.cause].requeues
        self._record_preemption(account, of, now_s)
        more: dict[str, Any] = {requeues: getattr(account, requeues) + 1}
        if run := self._runs.last_ended(of.key):
            self._runs.keep(replace(run, idle_s=0.0))
            if of.cause is Cause.HUNG:
                before = account.avoided_nodes if account.hung_requeues else ""
                more["avoided_nodes"] = folded({*node_names(before), *node_names(run.nodes)})
        self._accounts.put(replace(account, **more))

    def _record_preemption(self, account: JobAccount, of: Preemption, now_s: float) -> None:
        run = self._runs.last_ended(of.key)
        preemptor = self._accounts.of(of.preemptor)
        self._changes.put(
            self._ledger.preemptions,
            PreemptionRecord(
                key=of.key,
                for_job=of.preemptor,
                at_s=now_s,
                run_start_s=run.start_s if run else None,
                signalled_s=of.signalled_s,
                tier=account.tier,
                for_tier=preemptor.tier if preemptor else None,
                cause=of.cause,
                late_s=self._late_s(of, (run and run.end_s) or now_s),
            ),
        )

    def _mark_signalled(self, key: str, now_s: float, cause: Cause, *, heard: bool) -> None:
        """Record that a job's present run was signalled for no other job."""
        account, books = self._accounts.of(key), OWN_BOOKS[cause]
        if account is None or getattr(account, books.signalled_run) == account.restarts:
            return
        run: dict[str, Any] = {books.signalled_run: account.restarts}
        self._accounts.put(replace(account, **run))
        if heard:
            text = f"restart {account.restarts}"
            if cause is Cause.IDLE_GPUS:
                text = f"no GPU used for {self._config.idle_gpus.leave_after_s:g} s, {text}"
            self._events.note(now_s, books.signalled, key, text)

    def _await_cost(self, account: JobAccount, of: Preemption, now_s: float) -> None:
        last = self._runs.last_ended(of.key)
        asked_s = of.signalled_s or of.requeue_sent_s
        if last is None or asked_s is None:
            return
        # It may have been requeued twice since it was last observed.
        before = self._shown(of.key)
        restarts = before.restarts if before else account.restarts - 1
        self.costs.put(PreemptionCost(of.key, last.start_s, restarts, now_s, asked_s, last.gpus))

    def _note_loss(self, account: JobAccount, of: Preemption, now_s: float) -> None:
        """Charge the cost of a preemption to the users whose jobs caused it."""
        owner = self._accounts.owner_of(of.preemptor)
        last = self._runs.last_ended(account.key)
        if owner is None or last is None:
            return
        for loss in losses_of(
            now_s,
            owner[0],
            account.user,
            last.gpus,
            last.elapsed_s,
            self._late_s(of, last.end_s or now_s),
        ):
            self.costs.recent_losses(now_s).add(loss)

    def _late_s(self, of: Preemption, end_s: float) -> float:
        """Return by how much longer than the site gives a victim has kept its GPUs."""
        if of.signalled_s is None or of.grace_until_s is None:
            return 0.0
        config = self._config.preemption
        grace_s = asked(config).grace_s if of.asked else config.grace_s
        return late_s(of.signalled_s, of.grace_until_s, end_s, grace_s)


class Costs:
    """What preemptions have cost, as far as it is known."""

    def __init__(self, changes: Changes, config: Config) -> None:
        self._changes = changes
        self._ledger = changes.ledger
        self._config = config
        self._losses: RecentLosses | None = None
        self._awaited = {(one.key, one.run_start_s): one for one in self._ledger.costs.awaited()}
        self._became_known: list[PreemptionCost] = []

    @property
    def awaited(self) -> Collection[PreemptionCost]:
        """The preemptions whose cost is not known yet."""
        return self._awaited.values()

    def put(self, cost: PreemptionCost) -> None:
        """Replace what is known of the cost of a preemption; committed with the other changes."""
        of = cost.key, cost.run_start_s
        self._changes.put(self._ledger.costs, cost)
        if cost.source == CostSource.AWAITED:
            self._awaited[of] = cost
        elif self._awaited.pop(of, None):
            self._became_known.append(cost)

    def forget(self, key: str) -> None:
        """Drop the costs of a job whose id was given to another job."""
        self._awaited = {of: cost for of, cost in self._awaited.items() if cost.key != key}

    def take_known(self) -> list[PreemptionCost]:
        """Return the costs that have become known, or are known to be unavailable, since the last
        call."""
        known, self._became_known = self._became_known, []
        return known

    def recent_losses(self, now_s: float) -> RecentLosses:
        """Return what each user's jobs have cost others in the window that ends now."""
        if self._losses is None:
            config = self._config.preemption
            since_s = now_s - BUDGET_WINDOW_S
            losses = self._ledger.preemptions.losses_since(since_s)
            self._losses = RecentLosses(config, losses)
        return self._losses
