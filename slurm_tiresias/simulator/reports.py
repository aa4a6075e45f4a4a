"""Simulated jobs that report their progress: truly, roughly, or falsely."""

from __future__ import annotations

import enum
import math
import random
from dataclasses import dataclass

from slurm_tiresias.core.features.claims import AcceptedReports
from slurm_tiresias.simulator.engine import SimJob
from slurm_tiresias.simulator.workload import Workload

LIE = 0.05
"""The share of its duration that a lying job reports as left, whenever it reports."""


SETTLED = 0.001
"""A claim counts as exact if it is off by at most this share of what the job still needs."""


class Reporter(enum.Enum):
    """How a job reports."""

    HONEST = "honest"
    LIAR = "liar"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class ReportModel:
    """How the jobs of a workload report.

    ``share`` of them report their remaining time, each time wrong by a factor of e to the power of
    a normal deviate with standard deviation ``sigma``; ``liars`` say that hardly anything is left.
    """

    share: float
    sigma: float = 0.0
    liars: float = 0.0

    def __str__(self) -> str:
        rough = f", each time off by e^{self.sigma:g}" if self.sigma else ""
        lie = f", and {100 * self.liars:g} % lie" if self.liars else ""
        return f"{100 * self.share:g} % of the jobs{rough}{lie}"

    def reporter(self, workload: str, job_id: str) -> Reporter:
        """Return how a job reports, which depends on its id and its workload's name only."""
        drawn = random.Random(f"reports:{workload}:{job_id}").random()
        if drawn < self.liars:
            return Reporter.LIAR
        return Reporter.HONEST if drawn < self.liars + self.share else Reporter.SILENT


class Reports:
    """The reports of one simulation."""

    def __init__(self, model: ReportModel, workload: Workload) -> None:
        self._model = model
        self._accepted = AcceptedReports()
        self._workload = workload.name
        self._reporting: dict[str, _Reporting] = {}
        """The jobs that have arrived and report."""

    def starts(self, job: SimJob) -> None:
        """Begin to track a job that starts, for the first time or again."""
        assert job.running_since_s is not None
        if job.first_started_s == job.running_since_s:
            reporter = self._model.reporter(self._workload, job.job_id)
            if reporter is Reporter.SILENT:
                return
            chance = random.Random(f"sigma:{self._workload}:{job.job_id}")
            self._reporting[job.job_id] = _Reporting(reporter, chance)
        reporting = self._reporting.get(job.job_id)
        if reporting is not None:
            due_in_s = self._accepted.due_in_s(job.job_id, job.run_s, ran_s=0.0)
            reporting.next_s = job.running_since_s + due_in_s

    def has(self, job: SimJob) -> bool:
        """Whether a job reports."""
        return self._model.reporter(self._workload, job.job_id) is not Reporter.SILENT

    def next_s(self, job: SimJob) -> float:
        """When the next report of a running job is accepted; infinite if it does not report."""
        reporting = self._reporting.get(job.job_id)
        return math.inf if reporting is None else reporting.next_s

    def follow(self, job: SimJob, now_s: float) -> None:
        """Accept the report of a running job if one is due; its service is up to date."""
        reporting = self._reporting.get(job.job_id)
        if reporting is None or now_s < reporting.next_s:
            return
        said_gpu_s = self._said_s(job, reporting) * job.width
        job.claim = self._accepted.accept(
            job.job_id, job.claim, said_gpu_s, job.attained_gpu_s, job.run_s, job.width
        )
        exact = reporting.reporter is Reporter.HONEST and not self._model.sigma
        off_gpu_s = abs(job.claim.total_gpu_s - job.attained_gpu_s - said_gpu_s)
        settled = off_gpu_s <= SETTLED * said_gpu_s
        assert job.running_since_s is not None
        ran_s = now_s - job.running_since_s
        due_in_s = self._accepted.due_in_s(job.job_id, job.run_s, ran_s)
        # Further reports of an exact job say the same once earlier reports have lost their weight.
        reporting.next_s = math.inf if exact and settled else now_s + due_in_s

    def ended(self, job: SimJob) -> None:
        self._reporting.pop(job.job_id, None)

    def _said_s(self, job: SimJob, reporting: _Reporting) -> float:
        if reporting.reporter is Reporter.LIAR:
            return LIE * job.trace.duration_s
        true_s = job.overhead_s + job.work_s / job.speed
        if not self._model.sigma:
            return true_s
        # Not gauss(), whose numbers may differ between releases of Python.
        radius = math.sqrt(-2.0 * math.log1p(-reporting.chance.random()))
        deviate = radius * math.cos(2.0 * math.pi * reporting.chance.random())
        return true_s * math.exp(self._model.sigma * deviate)


@dataclass(slots=True)
class _Reporting:
    reporter: Reporter
    chance: random.Random
    next_s: float = math.inf
