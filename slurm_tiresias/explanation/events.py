"""The text of a controller event, from the point of view of one job."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_tiresias.explanation.reasons import IN_SHADOW, would_have
from slurm_tiresias.explanation.section import Section
from slurm_tiresias.model import EventRecord
from slurm_tiresias.status.job_history import JobHistory
from slurm_tiresias.text import at, printable

OWN_WORDS: Mapping[str, str] = {
    "hung": "found to hang",
    "hung-false": "did not hang after all",
    "hung-dumped": "told to print its stacks, because it hangs",
    "hung-signalled": "to be requeued because it hangs",
    "hung-requeued": "requeued because it hung",
    "hung-spared": "not requeued after all",
    "gpus-idle": "does nothing with its GPUs",
    "no-net-progress": "makes no net progress",
    "idle-signalled": "to be preempted for its idle GPUs",
    "idle-requeued": "requeued for its idle GPUs",
    "idle-spared": "not preempted for its idle GPUs after all",
}

ABOUT_NODES = frozenset({"node-suspected", "node-drained", "node-cleared"})


def event_section(job: JobHistory) -> Section:
    """Return what the controller noted of a job, oldest first."""
    return Section(
        "What happened",
        items=tuple(f"{at(event.at_s)}: {event_text(job.job_id, event)}" for event in job.events),
    )


def event_text(job_id: str, event: EventRecord) -> str:
    """Return the event as an action of this job, or an action on it."""
    if not event.job_id and event.kind in ABOUT_NODES:
        return f"{_kind(event)}: {printable(event.text)}"
    if not event.job_id:
        return f"the controller was {_kind(event)} {printable(event.text)}".rstrip()
    if event.job_id == job_id:
        return _its_own(event)
    return _as_the_other(event)


def _its_own(event: EventRecord) -> str:
    other, text = printable(event.other), printable(event.text)
    if event.kind == "preempted" and other:
        return f"preempted by job {other}{_in_brackets(text)}"
    if event.kind == "would":
        return would_have(text, other)
    if event.kind == "signal-refused" and other:
        return (
            f"Slurm refused its checkpoint signal, before it is preempted for job {other}: {text}"
        )
    if event.kind == "failed":
        return f"Slurm refused a change to it: {text}"
    if event.kind in OWN_WORDS:
        return f"{OWN_WORDS[event.kind]}{_after_colon(text)}"
    if event.kind == "demoted":
        return f"{event.kind} {text}"
    return f"{_kind(event)}{_after_colon(text)}"


def _as_the_other(event: EventRecord) -> str:
    whom, text = f"job {printable(event.job_id)}", printable(event.text)
    if event.kind == "preempted":
        return f"preempted {whom}{_in_brackets(text and f'its {text}')}"
    if event.kind == "would":
        return f"would have preempted {whom} ({IN_SHADOW})"
    if event.kind == "signal-refused":
        return f"Slurm refused the checkpoint signal of {whom}{_after_colon(text)}"
    return f"{whom} {_kind(event)}{_after_colon(text)}"


def _kind(event: EventRecord) -> str:
    """Return ``backed off`` for ``backed-off``; kinds of a newer controller are kept as is."""
    return printable(event.kind).replace("-", " ")


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _after_colon(text: str) -> str:
    return f": {text}" if text else ""
