"""Nodes that are suspected to be bad, by the runs that ended on them in the last day.

A user complains about a node if a program of that user failed early or hung there, and not
elsewhere, or is slower there than elsewhere at the same width. However often, a user's complaints
count once, and on several nodes they are divided among these: so no single user makes a node
suspect. Failures that Slurm itself sees count too, divided in the same way. Users whose later runs
last longer than early failures speak for the node.

Where many programs fail early, some healthy node has several complaints every day. So it is also
known how likely chance alone brings as many to any node, with as many runs as it had.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from slurm_tiresias.core.features.failed_runs import EARLY_S, LOOKS_BACK_S, NODE_FAILURES
from slurm_tiresias.core.features.feature import Explained, Feature
from slurm_tiresias.core.features.news import Happened
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobAccount, JobState, Node, RunRecord

NODE_SUSPECTED: Final = "node-suspected"
"""The event of a node that has become suspect."""

SUSPECT_AT: Final = 2.0
"""The suspicion from which on a node is avoided: two complaints, for example."""

SPEAKS_FOR: Final = 0.5
"""By how much each user speaks for a node."""

SLOW: Final = 0.8
"""A node is slow for a program whose steps have less than this share of their speed elsewhere."""

ONE_FAILURE_S: Final = 60.0
"""Runs that end with a node within this time are one failure of the node."""

USUALLY_BAD, OF_RUNS = 0.2, 20
"""By so many runs that failed or hung, of so many, the share in the cluster is completed, as a new
site has few."""

BY_CHANCE: Final = 0.01
"""A node stands out if chance alone makes at most so many nodes look as bad in a day."""

LOOKS_EVERY_S: Final = 600.0
"""How often all nodes are looked at again: runs become too old to count."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended run, as far as it says something of its nodes."""

    user: str
    name: str
    gpus: int
    nodes: frozenset[str]
    end_s: float
    elapsed_s: float
    outcome: str
    idle_gpu_s: float
    step_s: float | None

    hung: bool

    @property
    def failed_early(self) -> bool:
        """Whether the node may be why it failed, or hung."""
        return self.hung or (self.outcome == "FAILED" and self.elapsed_s < EARLY_S)

    @property
    def is_bad(self) -> bool:
        """Whether the node may be why it ended as it did."""
        return self.failed_early or self.outcome in NODE_FAILURES

    @property
    def share(self) -> float:
        """How much of a complaint each of its nodes gets."""
        return 1.0 / len(self.nodes)


class NodeStanding(NamedTuple):
    """What the runs of the last day say of a node."""

    runs: int = 0
    early_failures: int = 0
    speed: float | None = None
    """The usual speed of steps, as a share of their speed on other nodes; None if unknown."""
    idle_gpu_s: float = 0.0
    """Idle time of its GPUs in these runs, summed over the GPUs."""
    suspicion: float = 0.0
    by_chance: float = 1.0
    """How many nodes of the cluster would look as bad in a day if all were healthy."""
    evidence: str = ""

    @property
    def is_suspect(self) -> bool:
        return self.suspicion >= SUSPECT_AT

    @property
    def stands_out(self) -> bool:
        """Whether chance is no likely cause, so that the node may be drained."""
        return self.by_chance <= BY_CHANCE


class BadNodes(Feature):
    """Knows the nodes that are suspected, which are used only if no others suffice."""

    def __init__(
        self,
        ended: Iterable[tuple[JobAccount, RunRecord]] = (),
        cleared_s: Mapping[str, float] | None = None,
    ) -> None:
        """``ended`` are the runs of the last day, with their jobs; ``cleared_s`` is when nodes were
        cleared: earlier runs no longer count."""
        self._runs: dict[tuple[str, float], Ended] = {}
        self._on: dict[str, dict[tuple[str, float], Ended]] = {}
        """The ended runs by node."""
        self._of: dict[tuple[str, str], dict[tuple[str, float], Ended]] = {}
        """The ended runs by program."""
        self._cleared_s = dict(cleared_s or {})
        self._changed: set[str] = set()
        self._looked_at_s = -math.inf
        self._is_there: frozenset[str] = frozenset()
        self.standings: dict[str, NodeStanding] = {}
        for account, run in ended:
            self.run_ended(account, run)

    @property
    def last_resort(self) -> frozenset[str]:
        suspects = (name for name, one in self.standings.items() if one.is_suspect)
        return self._is_there.intersection(suspects)

    def clear(self, node: str, at_s: float) -> None:
        """Count no run on a node that ended before this time."""
        self._cleared_s[node] = at_s
        self._changed.add(node)

    def follow_nodes(self, nodes: Sequence[Node]) -> None:
        self._is_there = frozenset(node.name for node in nodes)

    def run_ended(self, account: JobAccount, run: RunRecord) -> None:
        if run.end_s is None or not run.nodes:
            return
        key, program = (run.key, run.start_s), (account.user, account.name)
        names = frozenset(run.nodes.split(","))
        ended = Ended(
            *(*program, run.gpus, names, run.end_s, run.elapsed_s, run.outcome),
            *(run.idle_gpu_s, run.step_s, run.hung_s > 0.0),
        )
        if self._runs.get(key) == ended:
            return
        self._runs[key] = ended
        self._of.setdefault(program, {})[key] = ended
        for node in names:
            self._on.setdefault(node, {})[key] = ended
        # Whether a program fails or is slow elsewhere says something of all its nodes.
        for other in self._of[program].values():
            self._changed |= other.nodes

    def tick(self, now_s: float) -> Iterable[Job]:
        if not 0.0 <= now_s - self._looked_at_s < LOOKS_EVERY_S:
            self._looked_at_s = now_s
            self._forget_before(now_s - LOOKS_BACK_S)
            self._changed.update(self.standings)
        bad = sum(run.is_bad for run in self._runs.values()) if self._changed else 0
        for node in sorted(self._changed):
            before, now = self.standings.get(node), self._standing(node, bad)
            self.standings[node] = now
            if now.is_suspect and not (before and before.is_suspect):
                self.report(Happened("", NODE_SUSPECTED, f"{node}: {now.evidence}", once=True))
        self._changed.clear()
        return ()

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        if job.state is not JobState.RUNNING:
            return None
        suspects = sorted(self.last_resort.intersection(job.allocation))[:3]
        says = (
            f"Its node {node} is suspected: {self.standings[node].evidence}." for node in suspects
        )
        return Explained(says=tuple(says)) if suspects else None

    def _forget_before(self, at_s: float) -> None:
        for key, run in list(self._runs.items()):
            if run.end_s < at_s:
                del self._runs[key]
                self._of[run.user, run.name].pop(key)
                for node in run.nodes:
                    self._on[node].pop(key)

    def _standing(self, node: str, bad_runs: int) -> NodeStanding:
        """Return what its runs say of a node; ``bad_runs`` is their number in the whole cluster."""
        since_s = self._cleared_s.get(node, -math.inf)
        runs = [run for run in self._on.get(node, {}).values() if run.end_s > since_s]
        complaints: dict[str, float] = {}
        failures: dict[float, float] = {}
        for run in runs:
            if run.outcome in NODE_FAILURES:
                at = run.end_s // ONE_FAILURE_S
                failures[at] = max(failures.get(at, 0.0), run.share)
        early = [run for run in runs if run.failed_early]
        blamed = [run for run in early if not self._fails_elsewhere(run, node)]
        speeds = [(run, speed) for run in runs if (speed := self._speed(run, node)) is not None]
        slow = [run for run, speed in speeds if speed < SLOW]
        for run in (*blamed, *slow):
            complaints[run.user] = max(complaints.get(run.user, 0.0), run.share)
        first_s = min((run.end_s for run in blamed), default=math.inf)
        speak_for = {
            run.user
            for run in runs
            if run.end_s > first_s
            and run.elapsed_s >= EARLY_S
            and not run.failed_early
            and run.outcome not in NODE_FAILURES
        }
        against = sum(complaints.values()) + sum(failures.values())
        elsewhere = bad_runs - sum(run.is_bad for run in runs) + USUALLY_BAD
        share_elsewhere = elsewhere / (len(self._runs) - len(runs) + OF_RUNS)
        expected = share_elsewhere * sum(run.share for run in runs)
        by_chance = len(self._is_there) * _poisson_tail(against, expected)
        speed = median(speed for _, speed in speeds) if speeds else None
        hung = [run for run in blamed if run.hung]
        failed = [run for run in blamed if not run.hung]
        of_users = (("early failure", failed), ("hung run", hung), ("slow run", slow))
        evidence = [
            f"{_count(counted, what)} of {_count({run.user for run in counted}, 'user')}"
            for what, counted in of_users
            if counted
        ]
        if failures:
            evidence.append(f"{_count(failures, 'failure')} of the node")
        if speak_for:
            evidence.append(f"{_count(speak_for, 'user')} with longer runs since")
        if against >= SUSPECT_AT and by_chance > BY_CHANCE:
            evidence.append("as many as chance may bring")
        return NodeStanding(
            runs=len(runs),
            early_failures=len(early),
            speed=speed,
            idle_gpu_s=sum(run.idle_gpu_s * run.share for run in runs),
            suspicion=max(0.0, against - SPEAKS_FOR * len(speak_for)),
            by_chance=by_chance,
            evidence=", ".join(evidence),
        )

    def _fails_elsewhere(self, run: Ended, node: str) -> bool:
        others = self._of[run.user, run.name].values()
        return any(other.failed_early and node not in other.nodes for other in others)

    def _speed(self, run: Ended, node: str) -> float | None:
        """Return the speed of a run's steps, as a share of that of the program's runs of the same
        width elsewhere; None if unknown."""
        if not run.step_s:
            return None
        elsewhere = [
            other.step_s
            for other in self._of[run.user, run.name].values()
            if other.step_s and other.gpus == run.gpus and node not in other.nodes
        ]
        return median(elsewhere) / run.step_s if elsewhere else None


def _poisson_tail(least: float, expected: float) -> float:
    """Return the probability that a Poisson variable is at least this large, rounded down."""
    term = below = math.exp(-expected)
    for number in range(1, math.floor(least)):
        term *= expected / number
        below += term
    return max(0.0, 1.0 - below) if least >= 1.0 else 1.0


def _count(found: Sized, noun: str) -> str:
    return f"{len(found)} {noun}" if len(found) == 1 else f"{len(found)} {noun}s"
