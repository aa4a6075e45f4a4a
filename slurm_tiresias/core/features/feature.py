"""The interface of the core's features."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from slurm_tiresias.core.features.news import Happened, Remember
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobAccount, Node, RunRecord


@dataclass(frozen=True, slots=True)
class Explained:
    """What a feature shows of a job. Numbers in the texts are followed by how they are shown, in
    braces: ``{1.5 moment}`` is a time, ``{1.5 duration}`` are seconds."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """By the names under which they are published."""
    says: tuple[str, ...] = ()
    """Sentences for ``explain``."""
    alarm: str = ""
    """What needs the attention of the job's user, in a few words."""


class Gauge(NamedTuple):
    """A metric: the sums over all jobs of numbers that follow from a fact of a feature, by the
    value of its label, "" if it has none."""

    name: str
    doc: str
    fact: str
    of: Mapping[str, Callable[[Any], float]]
    labels: Mapping[str, str] = MappingProxyType({})
    """The meaning of the label's values."""


class Feature:
    """What a feature does when something happens. It sets facts of jobs, by which these are ranked
    and protected; each of its methods is optional.

    ``core/features/in_order.py`` lists the features in the order in which they are called.
    """

    _news: Sequence[Happened | Remember] = ()

    def follow_nodes(self, nodes: Sequence[Node]) -> None:
        """Follow the nodes of the cluster."""
        return

    def follow(self, job: Job, now_s: float) -> None:
        """Follow a managed job that has come or changed, before it is ranked."""
        return

    def forget(self, job: Job) -> None:
        """Follow the end of a job."""
        return

    def run_ended(self, account: JobAccount, run: RunRecord) -> None:
        """Follow the end of a run, where there is a ledger. Its figures may be corrected later."""
        return

    def tick(self, now_s: float) -> Iterable[Job]:
        """Yield the jobs of which a fact has changed since they were last followed, by the passing
        of time or by what happened to others."""
        return ()

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        """Return what it shows of a job, by the job's account as it is after the last plan; None if
        nothing."""
        return None

    def report(self, *news: Happened | Remember) -> None:
        """Say what is to be recorded; a ledger keeps it, where there is one."""
        self._news = [*self._news, *news]

    def take_news(self) -> Sequence[Happened | Remember]:
        """Return what has been reported since the last call."""
        news, self._news = self._news, ()
        return news

    @property
    def last_resort(self) -> Collection[str]:
        """The nodes that are to be used only if no others suffice."""
        return ()

    @property
    def next_change_s(self) -> float:
        """When ``tick`` may next yield a job although nothing has happened; or infinite."""
        return math.inf
