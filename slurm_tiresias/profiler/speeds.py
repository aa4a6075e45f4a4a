"""The measured cost of spreading: a program's message rates on few nodes and on many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from slurm_tiresias.profiler.fit import Pair
from slurm_tiresias.profiler.profile import Key
from slurm_tiresias.profiler.skew import Skew

LEAST_RUNS = 2
"""Runs required of each placement: a single one may have been slow for any reason."""

LEAST_RUN_S = 60.0
"""Shorter runs are ignored: most of their time is start-up, in which nothing is sent."""

MOST_PROGRAMS_OF_A_USER = 3
"""Users control what their programs send, so no single user may move everyone's limit."""

ALIKE = 0.1
"""Largest relative difference of the largest messages of two runs of the same model."""


@dataclass(frozen=True, slots=True)
class RunTraffic:
    """One run of a job as its messages show it, summed over its nodes."""

    key: Key
    source: str
    skew: Skew
    sent_bytes: int
    gpus: int
    nodes: int
    elapsed_s: float

    @property
    def rate(self) -> float:
        """Bytes per second and GPU."""
        return self.sent_bytes / self.elapsed_s / self.gpus


@dataclass(frozen=True, slots=True)
class Spreading:
    """A program seen on few nodes and on more; ``gain``: its speed on few over that on more."""

    gain: float
    runs: int
    skew: float

    @property
    def pair(self) -> Pair:
        return Pair(self.skew, self.gain)


def what_spreading_costs(runs: Iterable[RunTraffic]) -> dict[Key, Spreading]:
    """Return, for every program seen in both placements, its speed consolidated relative to spread.

    Only runs with the same number of GPUs, the same kind of observation and the same model are
    compared.
    """
    groups: dict[tuple[Key, str, int], list[RunTraffic]] = {}
    for run in runs:
        if run.gpus > 0 and run.sent_bytes > 0 and run.elapsed_s >= LEAST_RUN_S:
            groups.setdefault((run.key, run.source, run.gpus), []).append(run)
    found: dict[Key, Spreading] = {}
    for (key, _, _), group in groups.items():
        spreading = _compared(group)
        if spreading and (key not in found or spreading.runs > found[key].runs):
            found[key] = spreading
    return found


def _compared(group: list[RunTraffic]) -> Spreading | None:
    latest = group[-1].skew
    leeway_bytes = ALIKE * latest.largest_bytes
    alike = [
        run for run in group if abs(run.skew.largest_bytes - latest.largest_bytes) <= leeway_bytes
    ]
    fewest = min(run.nodes for run in alike)
    few = [run.rate for run in alike if run.nodes == fewest]
    many = [run.rate for run in alike if run.nodes > fewest]
    if len(few) < LEAST_RUNS or len(many) < LEAST_RUNS:
        return None
    return Spreading(fmean(few) / fmean(many), len(alike), latest.ratio)


def pairs_of(costs: Mapping[Key, Spreading]) -> list[Pair]:
    """Return the pairs to fit the pack limit to: one per program, however often it ran."""
    of_user: Counter[str] = Counter()
    pairs = []
    for key, spreading in sorted(costs.items(), key=lambda item: -item[1].runs):
        of_user[key.user] += 1
        if of_user[key.user] <= MOST_PROGRAMS_OF_A_USER:
            pairs.append(spreading.pair)
    return pairs
