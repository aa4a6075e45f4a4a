"""The running jobs that may be preempted, by node and by preemption level."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator

from slurm_tiresias.placement.candidate_matrix import Candidate, CandidateMatrix
from slurm_tiresias.placement.free_resources import FreeResources, numbers
from slurm_tiresias.policy.job_rank import Key, UniqueRank


class CandidateIndex:
    """The candidates by node and by level.

    Most jobs start and end without any preemption being considered, so new candidates are indexed
    only when a preemption is considered.
    """

    def __init__(self, free: FreeResources, candidates: Iterable[Candidate] = ()) -> None:
        self._free = free
        self._matrix: CandidateMatrix | None = None
        self._new: dict[str, Candidate] = {candidate.job_id: candidate for candidate in candidates}
        self._on: list[dict[str, Candidate]] = [{} for _ in free.names]
        self._levels: dict[Key, dict[int, list[tuple[UniqueRank, Candidate]]]] = {}
        self._gpus: dict[Key, int] = {}
        self._protected_gpus: dict[Key, int] = {}

    def enter(self, candidate: Candidate) -> None:
        self._new[candidate.rank.job_id] = candidate

    def leave(self, candidate: Candidate) -> None:
        if self._new.pop(candidate.rank.job_id, None) is None:
            self._take_off_file(candidate)

    def on(self, number: int) -> Collection[Candidate]:
        self._file_new()
        return self._on[number].values()

    def gpus_below(self, level: Key, *, even_protected: bool) -> int:
        """Return the GPUs held by unprotected candidates of lower levels, or by all of them with
        ``even_protected``."""
        if self._new:
            self._file_new()
        below = 0
        for other, gpus in self._gpus.items():
            if other > level:
                below += gpus if even_protected else gpus - self._protected_gpus[other]
        return below

    def any_below(self, level: Key) -> bool:
        """Whether a job of a lower level runs, protected or not."""
        self._file_new()
        return any(other > level for other in self._levels)

    def below(self, level: Key) -> Iterator[dict[int, Iterator[Candidate]]]:
        """Yield for each lower level, lowest first, its candidates by GPU count, latest ranks
        first."""
        self._file_new()
        for other in sorted((other for other in self._levels if other > level), reverse=True):
            widths = self._levels[other]
            yield {gpus: (t for _, t in reversed(widths[gpus])) for gpus in sorted(widths)}

    def unprotect(self, candidate: Candidate) -> None:
        """Mark a candidate as no longer protected."""
        candidate.protected = False
        if candidate.job_id in self._new:
            return
        self._protected_gpus[candidate.level] -= candidate.gpus
        if self._matrix is not None:
            self._matrix.unprotect(candidate)

    def reorder(self, moved: Iterable[tuple[Candidate, UniqueRank]]) -> None:
        """Give candidates new ranks within their levels."""
        self._file_new()
        self._matrix = None
        for candidate, rank in moved:
            candidate.rank = rank
        for widths in self._levels.values():
            for alike in widths.values():
                alike[:] = [(candidate.rank, candidate) for _, candidate in alike]
                alike.sort()

    def matrix(self) -> CandidateMatrix:
        """All candidates as arrays; valid until the next candidate enters."""
        self._file_new()
        if self._matrix is None:
            alike = (some for widths in self._levels.values() for some in widths.values())
            self._matrix = CandidateMatrix(
                (candidate for some in alike for _, candidate in some), self._free
            )
        return self._matrix

    def _file_new(self) -> None:
        if self._new:
            self._matrix = None
        for candidate in self._new.values():
            for number in numbers(candidate.nodes):
                self._on[number][candidate.job_id] = candidate
            level = candidate.rank.level
            alike = self._levels.setdefault(level, {}).setdefault(candidate.gpus, [])
            insort(alike, (candidate.rank, candidate))
            self._gpus[level] = self._gpus.get(level, 0) + candidate.gpus
            protected_gpus = candidate.gpus if candidate.protected else 0
            self._protected_gpus[level] = self._protected_gpus.get(level, 0) + protected_gpus
        self._new.clear()

    def _take_off_file(self, candidate: Candidate) -> None:
        if self._matrix is not None:
            self._matrix.leave(candidate)
        for number in numbers(candidate.nodes):
            del self._on[number][candidate.job_id]
        level = candidate.rank.level
        widths = self._levels[level]
        alike = widths[candidate.gpus]
        del alike[bisect_left(alike, (candidate.rank,))]
        self._gpus[level] -= candidate.gpus
        if candidate.protected:
            self._protected_gpus[level] -= candidate.gpus
        if not alike:
            del widths[candidate.gpus]
            if not widths:
                del self._levels[level], self._gpus[level], self._protected_gpus[level]
