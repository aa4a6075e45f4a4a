"""The nominations and preemptions of all jobs, and which of them the ledger does not have yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from slurm_tiresias.lifecycle import nomination, preemption
from slurm_tiresias.lifecycle.nomination import (
    Nomination,
    NominationEffects,
    NominationEvent,
)
from slurm_tiresias.lifecycle.preemption import (
    Preemption,
    PreemptionEffects,
    PreemptionEvent,
)


class LifecycleTracker:
    """Applies events, and remembers what they changed until the ledger has it."""

    def __init__(
        self, nominations: Iterable[Nomination], preemptions: Iterable[Preemption]
    ) -> None:
        self._nominations = {one.key: one for one in nominations}
        self._preemptions = {one.key: one for one in preemptions}
        self._changed_nominations: set[str] = set()
        self._changed_preemptions: set[str] = set()

    @property
    def nominations(self) -> Mapping[str, Nomination]:
        """By job; jobs that back off are among them."""
        return MappingProxyType(self._nominations)

    @property
    def preemptions(self) -> Mapping[str, Preemption]:
        """Those under way, by victim."""
        return MappingProxyType(self._preemptions)

    def apply_to_nomination(self, key: str, event: NominationEvent) -> NominationEffects:
        """Take in what happened to a job that is to start."""
        current = self._nominations.get(key)
        after, effects = nomination.transition(key, current, event)
        self._set_nomination(key, after)
        return effects

    def apply_to_preemption(self, key: str, event: PreemptionEvent) -> PreemptionEffects:
        """Take in what happened to a victim, or to its preemptor."""
        current = self._preemptions.get(key)
        after, effects = preemption.transition(key, current, event)
        self._set_preemption(key, after)
        return effects

    def shift(self, by_s: float) -> None:
        """slurmctld's clock was set by so many seconds: what was waited for is waited on for."""
        for one in list(self._nominations.values()):
            self._set_nomination(one.key, nomination.shifted(one, by_s))
        for victim in list(self._preemptions.values()):
            self._set_preemption(victim.key, preemption.shifted(victim, by_s))

    def forget(self, key: str) -> None:
        """The job's id was given to another one."""
        self._set_nomination(key, None)
        self._set_preemption(key, None)

    @property
    def is_settled(self) -> bool:
        """Whether no start and no preemption is under way."""
        return not self._preemptions and not any(n.is_active for n in self._nominations.values())

    # What the ledger lacks

    @property
    def changed_nominations(self) -> Mapping[str, Nomination | None]:
        """What has changed since ``saved``, by job; None where nothing is left."""
        return {key: self._nominations.get(key) for key in self._changed_nominations}

    @property
    def changed_preemptions(self) -> Mapping[str, Preemption | None]:
        """What has changed since ``saved``, by victim; None where nothing is left."""
        return {key: self._preemptions.get(key) for key in self._changed_preemptions}

    def saved(self) -> None:
        """The ledger has it all."""
        self._changed_nominations.clear()
        self._changed_preemptions.clear()

    def _set_nomination(self, key: str, after: Nomination | None) -> None:
        if after == self._nominations.get(key):
            return
        self._changed_nominations.add(key)
        if after is None:
            del self._nominations[key]
        else:
            self._nominations[key] = after

    def _set_preemption(self, key: str, after: Preemption | None) -> None:
        if after == self._preemptions.get(key):
            return
        self._changed_preemptions.add(key)
        if after is None:
            del self._preemptions[key]
        else:
            self._preemptions[key] = after
