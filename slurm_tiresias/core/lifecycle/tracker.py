"""The nominations and preemptions of all jobs, and which of them have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Generic, TypeVar

from slurm_tiresias.core.lifecycle import nomination, preemption
from slurm_tiresias.core.lifecycle.nomination import (
    Nomination,
    NominationEffects,
    NominationEvent,
)
from slurm_tiresias.core.lifecycle.preemption import (
    Preemption,
    PreemptionEffects,
    PreemptionEvent,
    PreemptionState,
)
from slurm_tiresias.model import JobAccount

State = TypeVar("State", Nomination, Preemption)
Shifted = TypeVar("Shifted", Nomination, Preemption, JobAccount)


class _Tracked(Generic[State]):
    """The states of one kind by job, and which of them have changed since they were taken."""

    def __init__(self, states: Iterable[State]) -> None:
        self.states: dict[str, State] = {one.key: one for one in states}
        self.changed: set[str] = set()

    def put(self, key: str, after: State | None) -> None:
        """Set a job's state; None removes it."""
        if after == self.states.get(key):
            return
        self.changed.add(key)
        if after is None:
            del self.states[key]
        else:
            self.states[key] = after

    def take_changed(self) -> Mapping[str, State | None]:
        changed, self.changed = self.changed, set()
        return {key: self.states.get(key) for key in changed}


def shifted(record: Shifted, by_s: float) -> Shifted:
    """Return a record after a step of slurmctld's clock: timeouts keep their lengths."""
    times_s = {name: getattr(record, name) for name in record.SHIFTED}
    return replace(record, **{n: at_s + by_s for n, at_s in times_s.items() if at_s is not None})


class LifecycleTracker:
    """Applies events, and tracks changes until they are taken."""

    def __init__(
        self, nominations: Iterable[Nomination], preemptions: Iterable[Preemption]
    ) -> None:
        self._nominations = _Tracked(nominations)
        self._preemptions = _Tracked(preemptions)

    @property
    def nominations(self) -> Mapping[str, Nomination]:
        """All nominations by job, including those that back off."""
        return MappingProxyType(self._nominations.states)

    @property
    def preemptions(self) -> Mapping[str, Preemption]:
        """The preemptions under way or called off, by victim."""
        return MappingProxyType(self._preemptions.states)

    def apply_to_nomination(self, key: str, event: NominationEvent) -> NominationEffects:
        """Apply an event to a nomination, and return its effects."""
        after, effects = nomination.transition(key, self.nominations.get(key), event)
        self._nominations.put(key, after)
        return effects

    def apply_to_preemption(self, key: str, event: PreemptionEvent) -> PreemptionEffects:
        """Apply an event to a preemption, and return its effects."""
        after, effects = preemption.transition(key, self.preemptions.get(key), event)
        self._preemptions.put(key, after)
        return effects

    def shift(self, by_s: float) -> None:
        """Shift all times after a step of slurmctld's clock, so that timeouts keep their length."""
        for one in list(self.nominations.values()):
            self._nominations.put(one.key, shifted(one, by_s))
        for victim in list(self.preemptions.values()):
            self._preemptions.put(victim.key, shifted(victim, by_s))

    def forget(self, key: str) -> None:
        """Drop the states of a job whose id was given to another job."""
        self._nominations.put(key, None)
        self._preemptions.put(key, None)

    @property
    def is_settled(self) -> bool:
        """Whether no start and no preemption is under way."""
        called_off = PreemptionState.CALLED_OFF
        under_way = any(one.state is not called_off for one in self.preemptions.values())
        return not under_way and not any(one.is_active for one in self.nominations.values())

    def take_changed_nominations(self) -> Mapping[str, Nomination | None]:
        """Return those changed since the last call, by job; None for one that is over."""
        return self._nominations.take_changed()

    def take_changed_preemptions(self) -> Mapping[str, Preemption | None]:
        """Return those changed since the last call, by victim; None for one that is over."""
        return self._preemptions.take_changed()
