"""The running jobs that may be preempted, by node and by preemption level."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator

from slurm_tiresias.core.features.protection import Shield, least_shield
from slurm_tiresias.core.placement.candidate_matrix import Candidate, CandidateMatrix
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.core.placement.node_set import numbers
from slurm_tiresias.core.rank import Key, UniqueRank
from slurm_tiresias.model import WorkAtStake


class CandidateIndex:
    """The candidates by node and by level.

    Most jobs start and end without any preemption being considered, so new candidates are indexed
    only when a preemption is considered.
    """

    def __init__(self, free: FreeResources, candidates: Iterable[Candidate] = ()) -> None:
        self._free = free
        self._matrices: dict[float | None, CandidateMatrix] = {}
        """The time at which losses were weighed; None: the order without regard to losses."""
        self._new: dict[str, Candidate] = {candidate.job_id: candidate for candidate in candidates}
        self._on: list[dict[str, Candidate]] = [{} for _ in free.names]
        self._levels: dict[Key, dict[int, list[tuple[UniqueRank, Candidate]]]] = {}
        self._gpus: dict[Key, list[int]] = {}
        """For each level, the GPUs of its candidates by their shields."""
        self._by_loss: dict[int, list[Candidate]] = {}
        """By width: the candidates that lose least first, at ``_weighed_at_s``."""
        self._weighed_at_s: float | None = None

    def enter(self, candidate: Candidate) -> None:
        self._new[candidate.rank.job_id] = candidate

    def leave(self, candidate: Candidate) -> None:
        if self._new.pop(candidate.rank.job_id, None) is None:
            self._take_off_file(candidate)

    def on(self, number: int) -> Collection[Candidate]:
        self._file_new()
        return self._on[number].values()

    def gpus_below(self, level: Key, *, even_protected: bool) -> int:
        """Return the GPUs held by candidates that a job of this level may preempt, or might if none
        were protected, with ``even_protected``."""
        if self._new:
            self._file_new()
        stopped_by = least_shield(level, even_protected=even_protected)
        return sum(sum(gpus[:stopped_by]) for other, gpus in self._gpus.items() if other > level)

    def any_below(self, level: Key) -> bool:
        """Whether a job of a lower level runs, protected or not."""
        self._file_new()
        return any(other > level for other in self._levels)

    def below(
        self, level: Key, weighs_at_s: float | None
    ) -> Iterator[dict[int, Iterator[Candidate]]]:
        """Yield candidates of lower levels by GPU count: if losses are weighed, all of them, those
        that lose least at this time first; otherwise those of each level, the lowest first. Among
        equals the latest ranks come first."""
        self._file_new()
        self._weigh_at(weighs_at_s)
        lower = sorted((other for other in self._levels if other > level), reverse=True)
        if weighs_at_s is not None:
            yield {
                gpus: (t for t in self._least_loss_first(gpus, weighs_at_s) if t.level > level)
                for gpus in sorted({gpus for other in lower for gpus in self._levels[other]})
            }
            return
        for other in lower:
            widths = self._levels[other]
            yield {gpus: (t for _, t in reversed(widths[gpus])) for gpus in sorted(widths)}

    def _least_loss_first(self, gpus: int, now_s: float) -> list[Candidate]:
        found = self._by_loss.get(gpus)
        if found is None:
            alike = (widths.get(gpus, ()) for widths in self._levels.values())
            latest_first = sorted((one for some in alike for one in some), reverse=True)
            found = [candidate for _, candidate in latest_first]
            found.sort(key=lambda candidate: candidate.lost_gpu_s(now_s))
            self._by_loss[gpus] = found
        return found

    def _weigh_at(self, now_s: float | None) -> None:
        """Drop what was sorted by the losses at another time."""
        if now_s is not None and now_s != self._weighed_at_s:
            self._forget_losses()
            self._weighed_at_s = now_s

    def _forget_losses(self) -> None:
        self._by_loss.clear()
        if self._weighed_at_s is not None:
            self._matrices.pop(self._weighed_at_s, None)
            self._weighed_at_s = None

    def restake(self, candidate: Candidate, at_stake: WorkAtStake | None) -> None:
        """Change what is at stake for a candidate."""
        candidate.at_stake = at_stake
        self._forget_losses()

    def protect(self, candidate: Candidate, shield: Shield) -> None:
        """Change the shield of a candidate."""
        before, candidate.shield = candidate.shield, shield
        if candidate.job_id in self._new:
            return
        gpus = self._gpus[candidate.level]
        gpus[before] -= candidate.gpus
        gpus[shield] += candidate.gpus
        for matrix in self._matrices.values():
            matrix.protect(candidate)

    def reorder(self, moved: Iterable[tuple[Candidate, UniqueRank]]) -> None:
        """Give candidates new ranks within their levels."""
        self._file_new()
        self._matrices.clear()
        self._by_loss.clear()
        for candidate, rank in moved:
            candidate.rank = rank
        for widths in self._levels.values():
            for alike in widths.values():
                alike[:] = [(candidate.rank, candidate) for _, candidate in alike]
                alike.sort()

    def matrix(self, weighs_at_s: float | None = None) -> CandidateMatrix:
        """All candidates as arrays; valid until the next candidate enters."""
        self._file_new()
        self._weigh_at(weighs_at_s)
        matrix = self._matrices.get(weighs_at_s)
        if matrix is None:
            alike = (some for widths in self._levels.values() for some in widths.values())
            candidates = (candidate for some in alike for _, candidate in some)
            matrix = CandidateMatrix(candidates, self._free, weighs_at_s)
            self._matrices[weighs_at_s] = matrix
        return matrix

    def _file_new(self) -> None:
        if self._new:
            self._matrices.clear()
        for candidate in self._new.values():
            for number in numbers(candidate.nodes):
                self._on[number][candidate.job_id] = candidate
            level = candidate.rank.level
            alike = self._levels.setdefault(level, {}).setdefault(candidate.gpus, [])
            insort(alike, (candidate.rank, candidate))
            self._by_loss.pop(candidate.gpus, None)
            gpus = self._gpus.setdefault(level, [0] * len(Shield))
            gpus[candidate.shield] += candidate.gpus
        self._new.clear()

    def _take_off_file(self, candidate: Candidate) -> None:
        for matrix in self._matrices.values():
            matrix.leave(candidate)
        for number in numbers(candidate.nodes):
            del self._on[number][candidate.job_id]
        level = candidate.rank.level
        widths = self._levels[level]
        alike = widths[candidate.gpus]
        del alike[bisect_left(alike, (candidate.rank,))]
        self._by_loss.pop(candidate.gpus, None)
        self._gpus[level][candidate.shield] -= candidate.gpus
        if not alike:
            del widths[candidate.gpus]
            if not widths:
                del self._levels[level], self._gpus[level]
