"""Programs that have passed a drill: the site may allow their preemption after a shorter run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from slurm_tiresias.core.features.feature import Explained, Feature
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobAccount

Program = tuple[str, str]
"""A user and a job name."""

DRILLED_FOR_S: Final = 90 * 86_400.0
"""After this time a program must pass another drill, since it will have changed."""

MOST_OF_A_USER: Final = 100
"""How many programs are remembered for each user: the latest."""


def remembered(
    programs: Mapping[Program, float], results: Mapping[Program, bool], now_s: float
) -> Mapping[Program, float]:
    """Return which programs have passed a drill, and when, the latest last, after these results."""
    first_s = next(iter(programs.values()), now_s)
    if not results and now_s - first_s <= DRILLED_FOR_S:
        return programs
    passed = dict.fromkeys((program for program, passed in results.items() if passed), now_s)
    known = {
        program: at_s
        for program, at_s in programs.items()
        if now_s - at_s <= DRILLED_FOR_S and program not in results
    } | passed
    too_many = Counter(user for user, _ in known)
    too_many.subtract(dict.fromkeys(too_many, MOST_OF_A_USER))
    kept = {}
    for (user, name), at_s in known.items():
        if too_many[user] > 0:
            too_many[user] -= 1
        else:
            kept[user, name] = at_s
    return kept


class Drilled(Feature):
    """Sets ``drilled``."""

    def __init__(self, programs: Callable[[], Mapping[Program, float]]) -> None:
        """``programs`` returns those that have passed; it returns another mapping once one has been
        added or has expired."""
        self._programs = programs
        self._passed = programs()
        self._jobs: dict[Program, dict[str, Job]] = {}

    def follow(self, job: Job, now_s: float) -> None:
        program = job.user, job.name
        self._jobs.setdefault(program, {})[job.job_id] = job
        job.drilled = program in self._passed

    def forget(self, job: Job) -> None:
        of_program = self._jobs.get((job.user, job.name), {})
        of_program.pop(job.job_id, None)
        if not of_program:
            self._jobs.pop((job.user, job.name), None)

    def tick(self, now_s: float) -> Iterable[Job]:
        before, self._passed = self._passed, self._programs()
        if before is not self._passed:
            for program in before.keys() ^ self._passed.keys():
                yield from list(self._jobs.get(program, {}).values())

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        return Explained({"drilled": True}) if counts_as_drilled(job) else None


def counts_as_drilled(job: Job) -> bool:
    """Whether a job's program has passed a drill, and nothing has contradicted that since."""
    return job.drilled and not job.past_losses.program_lost and not job.past_losses.stuck_runs
