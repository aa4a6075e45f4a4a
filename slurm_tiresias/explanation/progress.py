"""A job's progress in words: for the table of ``status``, and in sentences for ``explain``."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_tiresias.model import STUCK_RUNS, JobState, ProgressSource
from slurm_tiresias.status.published import PublishedJob, PublishedProgress
from slurm_tiresias.text import NOTHING, at, duration, filled, printable

ACCORDING_TO = {
    ProgressSource.REPORTS.value: "by its own reports",
    ProgressSource.OUTPUT.value: "by what it prints",
    ProgressSource.COMMENT.value: "by its own reports in its comment",
}


def share(step: int, total: int | None) -> str:
    """Return ``37%``, or ``step 3,700`` without a total; 100% only once all steps are done."""
    return f"step {step:,}" if total is None else f"{100 * step // total}%"


def cell(job: PublishedJob) -> str:
    return share(job.progress.step, job.progress.total) if job.progress else NOTHING


def time_left(job: PublishedJob) -> str:
    """Return the range of the time that a running job still needs, ``2h05m-2h20m``."""
    progress = job.progress
    if progress is None or job.state != JobState.RUNNING.value:
        return NOTHING
    return _range(progress, "-") or NOTHING


def quiet(job: PublishedJob) -> str:
    """Return since when a running job has made no progress, if that is unusual; else ""."""
    if job.progress is None or job.progress.quiet_since_s is None:
        return ""
    return f"no progress since {at(job.progress.quiet_since_s)}"


def stuck(job: PublishedJob) -> str:
    """Return how many of its last runs saved nothing, if that is cause for alarm; else ""."""
    if job.stuck_runs < STUCK_RUNS:
        return ""
    return f"saved nothing in its last {job.stuck_runs} runs"


def alarm(job: PublishedJob) -> str:
    """Return what needs the attention of the job's user; "" if nothing."""
    return filled(job.alarm, at) or quiet(job) or stuck(job)


def longer_runs(job: PublishedJob) -> Iterator[str]:
    """Yield why a job is protected for longer than others, and what to do about it."""
    least = f"{duration(job.min_run_s)} after each start"
    if job.stuck_runs >= STUCK_RUNS:
        yield (
            f"Its last {job.stuck_runs} runs saved nothing: each began no further than the one "
            f"before. So that it can still end, it is not preempted for {least}, and each further "
            "preemption makes that longer. Make it save more often, or when it gets SIGTERM: "
            "docs/how-to/save-and-resume.md."
        )
    elif job.program_lost:
        times = "preemption" if job.program_lost == 1 else f"{job.program_lost} preemptions"
        yield (
            f"The last {times} of jobs of {printable(job.user)} named {printable(job.name)} lost "
            f"all their work, so it is not preempted for {least}. Make it save when it gets "
            "SIGTERM: docs/how-to/save-and-resume.md."
        )


def shorter_runs(job: PublishedJob) -> Iterator[str]:
    """Yield why a job may be preempted sooner than others."""
    if job.drilled:
        yield (
            f"Jobs of {printable(job.user)} named {printable(job.name)} have passed a drill, so it "
            f"may be preempted {duration(job.min_run_s)} after each start "
            "(preemption.drilled_min_run_s)."
        )


def sentences(job: PublishedJob, now_s: float) -> Iterator[str]:
    """Yield the job's progress, the time that it still needs, and where it would resume."""
    progress = job.progress
    if progress is None:
        return
    runs = job.state == JobState.RUNNING.value
    source = ACCORDING_TO.get(progress.source, progress.source)
    reached = "It is at" if runs else "Its last run reached"
    ago = f", {duration(now_s - progress.reported_s)} ago" if runs else ""
    if progress.total is None:
        yield f"{reached} step {progress.step:,}, {source}{ago}; of how many, it does not say."
    else:
        percent = 100 * progress.step // progress.total
        steps = f"{progress.step:,} of {progress.total:,} ({percent} %)"
        yield f"{reached} step {steps}, {source}{ago}."
    yield from _saves(progress, runs, now_s)
    if progress.slowest_rank is not None:
        yield (
            f"Of its {progress.reporting_ranks} processes, rank {progress.slowest_rank} on "
            f"{printable(progress.slowest_node)} is the slowest: without waiting, a step takes it "
            f"{100 * (progress.slower_by or 0.0):.0f} % longer than the others."
        )
    if progress.quiet_since_s is not None:
        since = duration(now_s - progress.quiet_since_s)
        yield (
            f"It has made no step since {at(progress.quiet_since_s)}, for {since}, which is "
            "unusually long for it: look at its output, or log in to its node."
        )
    elif progress.lost:
        yield "Nothing has come from its node for minutes, so it may be farther by now."
    elif needs := _range(progress, " to "):
        yield from _until_the_end(progress, needs, runs)


def _until_the_end(progress: PublishedProgress, needs: str, runs: bool) -> Iterator[str]:
    if not runs:
        yield f"Once it runs again it needs {needs} more; how long it waits before is not in this."
        return
    ends = "" if progress.eta_s is None else f", and ends about {at(progress.eta_s)}"
    yield f"It needs {needs} more{ends}, if it is not preempted."


def _saves(progress: PublishedProgress, runs: bool, now_s: float) -> Iterator[str]:
    if progress.saved_step is not None:
        when = "" if progress.saved_s is None else f", {duration(now_s - progress.saved_s)} ago"
        would = "" if runs else ", from which it would go on"
        yield f"It last saved after step {progress.saved_step:,}{when}{would}."
    elif progress.resumed_step:
        yield f"It went on from a save of step {progress.resumed_step:,}."
    elif progress.source != ProgressSource.OUTPUT.value:
        yield "It has not said that it saved anything."


def _range(progress: PublishedProgress, to: str) -> str:
    if progress.remaining_least_s is None or progress.remaining_most_s is None:
        return ""
    least, most = duration(progress.remaining_least_s), duration(progress.remaining_most_s)
    return least if least == most else f"{least}{to}{most}"
