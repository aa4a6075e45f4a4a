"""The service that a job still needs, as far as its reports are believed.

A report is a promise. A job that reports R remaining GPU-seconds is ranked by R until it has
attained twice that, plus what it attains in half a minute. Then its promise is broken, and it is
ranked by attained service for good. So a false report keeps a job ahead of others at most a few
times as long as a true one would (docs/explanation/algorithm.md).
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Final

from slurm_tiresias.core.job import Job
from slurm_tiresias.model import Claim

OVERRUN: Final = 2.0
"""A promise is broken when the job has attained this many times the service that it said was
left,"""

SPARE: Final = 0.5
"""and has also run for this share of the interval between two reports."""

GAIN: Final = 0.3
"""Weight of a new report against the earlier ones, so that fluctuating reports do not make jobs
change places back and forth."""

MOST_TIMES_ATTAINED: Final = 50.0
"""A claim counts for at most this many times the attained service, which bounds what a job can lose
by reporting far too much."""

REPORT_EVERY_S = 60.0
"""How long a job must have run before its reports are accepted, and at least between two of
them."""

REPORT_EVERY_SHARE: Final = 0.02
"""A report is accepted only after the job has run, since its last accepted report, for this share
of its total running time, so that long jobs are not queried all the time."""


SPEAKS_AGAIN_WITHIN_S: Final = 300.0
"""How long the claim of a restarted job holds until it reports again: it loads data and its
checkpoint first."""


def next_report_in_s(executed_s: float) -> float:
    """Return the running time in seconds until the next report of a job is accepted."""
    return max(REPORT_EVERY_S, REPORT_EVERY_SHARE * executed_s)


def with_report(
    claim: Claim | None,
    remaining_gpu_s: float,
    attained_gpu_s: float,
    width: float,
) -> Claim:
    """Return the claim of a job that reports this much remaining service."""
    if claim is not None:
        # In logarithms, because reports are off by factors; a second's service keeps them finite.
        before_gpu_s = max(claim.total_gpu_s - attained_gpu_s, float(width))
        remaining_gpu_s = before_gpu_s ** (1 - GAIN) * max(remaining_gpu_s, float(width)) ** GAIN
    promised_gpu_s = attained_gpu_s + OVERRUN * remaining_gpu_s + SPARE * REPORT_EVERY_S * width
    if claim is not None:
        promised_gpu_s = min(promised_gpu_s, claim.promised_gpu_s)
    return Claim(attained_gpu_s + remaining_gpu_s, promised_gpu_s)


class AcceptedReports:
    """Which reports are accepted, and what they make of the claims of jobs."""

    def __init__(self) -> None:
        self._accepted_at_s: dict[str, float] = {}
        """By job, its total running time when its last report was accepted."""

    def due_in_s(self, job_id: str, executed_s: float, ran_s: float) -> float:
        """Return the running time in seconds until the next report of a job is accepted.

        The first report of a run ends its warm-up, and shows the restart time.

        Parameters
        ----------
        executed_s
            Its total running time.
        ran_s
            How long its present run has lasted.
        """
        accepted_at_s = self._accepted_at_s.get(job_id, -math.inf)
        if accepted_at_s < executed_s - ran_s:
            return REPORT_EVERY_S - ran_s
        return next_report_in_s(accepted_at_s) - (executed_s - accepted_at_s)

    def accept(
        self,
        job_id: str,
        claim: Claim | None,
        remaining_gpu_s: float,
        attained_gpu_s: float,
        executed_s: float,
        width: float,
    ) -> Claim:
        """Accept that a job reports this much remaining service; return its claim from now on."""
        self._accepted_at_s[job_id] = executed_s
        return with_report(claim, remaining_gpu_s, attained_gpu_s, width)

    def forget_all_but(self, job_ids: Container[str]) -> None:
        """Forget the jobs that have ended."""
        accepted = self._accepted_at_s.items()
        self._accepted_at_s = {job_id: at_s for job_id, at_s in accepted if job_id in job_ids}


def is_broken(job: Job) -> bool:
    """Whether a job has attained more than its reports promised."""
    return job.claim is not None and job.attained_gpu_s > job.claim.promised_gpu_s


def expires_at_gpu_s(claim: Claim, width: float) -> float:
    """Return the attained service beyond which a claim does not count until the next report.

    By then the job should have ended, and should have reported again if it had not. Otherwise a
    job could stop reporting and use up a promise that was made when it needed far more.
    """
    return max(
        claim.total_gpu_s + REPORT_EVERY_S * width, claim.total_gpu_s / (1 - REPORT_EVERY_SHARE)
    )


def claimed_gpu_s(job: Job) -> float | None:
    """Return the remaining service by which a job's claim ranks it; None if the claim does not
    count."""
    claim, attained_gpu_s = job.claim, job.attained_gpu_s
    if claim is None or attained_gpu_s > claim.promised_gpu_s:
        return None
    left_gpu_s = claim.total_gpu_s - attained_gpu_s
    if left_gpu_s < 0.0:
        expired = attained_gpu_s > expires_at_gpu_s(claim, job.width)
        return None if expired else 0.0
    return min(left_gpu_s, MOST_TIMES_ATTAINED * attained_gpu_s)
