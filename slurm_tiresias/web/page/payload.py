"""The JSON for the page: the whole cluster in brief, and one job in detail.

Jobs, nodes and other long lists are sent as columns, so that field names appear once: 10,000 jobs
take a tenth of their size in the published state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from operator import attrgetter
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.explanation.costs import cost_section
from slurm_tiresias.explanation.job import LATELY, Case, sections
from slurm_tiresias.explanation.reasons import (
    REASON_TEXTS,
    SLURM_WORDS,
    done_in_words,
    would_do,
    would_text,
)
from slurm_tiresias.explanation.short import nodes_or_reason
from slurm_tiresias.model import EventRecord
from slurm_tiresias.status.job_history import JobHistory
from slurm_tiresias.status.published import PublishedJob, PublishedState
from slurm_tiresias.status.shadow_comparison import WOULD
from slurm_tiresias.status.waiting import goes_by_estimate
from slurm_tiresias.store.records import CompletedJob, LostTotals
from slurm_tiresias.web.page.recent import Sample

MOST_EVENTS = 200
MOST_BLOCKERS = 50

OF_JOB = (
    "job_id",
    "name",
    "user",
    "account",
    "partition",
    "state",
    "tier",
    "rank",
    "gpus",
    "nodes",
    "waited_s",
    "running_since_s",
    "submitted_s",
    "attained_gpu_s",
    "restarts",
    "preemptions",
    "action",
    "reason",
    "preempted_for",
    "start_on",
    "would",
    "slurm_reason",
)
OF_ENDED = ("key", "ended_s", "jct_s", "queued_s", "gpus", "tier", "preemptions")
OF_STATE = (
    "cluster",
    "slurm_version",
    "version",
    "mode",
    "policy",
    "order",
    "interval_s",
    "host",
    "started_s",
    "cycle",
    "at_s",
    "took_s",
    "failures",
    "error",
    "next_try_s",
    "warning",
    "only_of",
    "gpus",
    "tiers",
)


def of_cluster(
    state: PublishedState,
    ended: Sequence[CompletedJob],
    lost: LostTotals | None,
    samples: Sequence[Sample],
) -> bytes:
    """Return everything but the details of single jobs; ``lost`` is None if it is not known."""
    data: dict[str, Any] = {name: getattr(state, name) for name in OF_STATE}
    data["acts"] = state.acts
    data["nodes"] = {
        **_columns(("name", "gpus", "available"), state.nodes),
        "state": [
            f"{node.state}, suspected: {node.evidence}" if node.is_suspect else node.state
            for node in state.nodes
        ],
        "held": [[[h.job_id, h.gpus, h.tier] for h in node.held] for node in state.nodes],
    }
    data["jobs"] = _columns(OF_JOB, state.jobs)
    data["jobs"]["victims"] = {job.job_id: job.victims for job in state.jobs if job.victims}
    data["jobs"]["progress"] = _progress(state)
    data["jobs"]["where"] = list(map(nodes_or_reason, state.jobs))
    data["jobs"] |= _told(state)
    data["events"] = [_past(event) for event in state.events[-MOST_EVENTS:]]
    data["ended"] = _columns(OF_ENDED, ended)
    data["lost"] = lost
    data["course"] = _columns([field.name for field in fields(Sample)], samples)
    return json_codec.dumps(data)


def _past(event: EventRecord) -> EventRecord:
    """Put an event that was not carried out in the past tense."""
    if event.kind != WOULD:
        return event
    return replace(event, kind="would have", text=done_in_words(event.text))


def _columns(names: Sequence[str], rows: Sequence[Any]) -> dict[str, Any]:
    return {name: list(map(attrgetter(name), rows)) for name in names}


def _progress(state: PublishedState) -> list[float | None]:
    """Return how far each job has come in its tier, from 0 to 1.

    None for jobs in the last tier, for jobs without one, and for those ranked by remaining service.
    """
    limits = {tier.tier: (tier.from_gpu_s, tier.to_gpu_s) for tier in state.tiers}

    def of(job: PublishedJob) -> float | None:
        if goes_by_estimate(job):
            return None
        low_gpu_s, high_gpu_s = limits.get(-1 if job.tier is None else job.tier, (0.0, None))
        if high_gpu_s is None:
            return None
        counted_gpu_s = job.attained_since_promotion_gpu_s + job.inherited_gpu_s
        share = (counted_gpu_s - low_gpu_s) / (high_gpu_s - low_gpu_s)
        return round(min(1.0, max(0.0, share)), 3)

    return [of(job) for job in state.jobs]


def _told(state: PublishedState) -> dict[str, list[float | None]]:
    """Return the progress that jobs report: the share of steps done, and the time left."""
    told = [job.progress for job in state.jobs]
    return {
        "done": [round(one.step / one.total, 4) if one and one.total else None for one in told],
        "left_least_s": [one.remaining_least_s if one else None for one in told],
        "left_most_s": [one.remaining_most_s if one else None for one in told],
    }


def of_job(state: PublishedState, job_id: str, history: JobHistory | None) -> bytes | None:
    """Return one job in detail; None if it is unknown."""
    jobs = {job.job_id: job for job in state.jobs}
    job = jobs.get(job_id)
    if job is None and history is None:
        return None
    said = [] if job is None else sections(Case(job, state, jobs, state.at_s, "", MOST_BLOCKERS))
    costs = [cost_section(history)] if history and history.costs else []
    data = {
        "job": job and {**asdict(job), "blockers": ()},
        # The whole history is shown below, not only the last events.
        "sections": [section for section in said if section.title != LATELY],
        "costs": costs,
        "life": history and replace(history, events=tuple(map(_past, history.events))),
    }
    return json_codec.dumps(data)


def words() -> bytes:
    """Return the meaning of the controller's and of Slurm's reasons."""
    reasons = {
        reason.value: {
            "short": text.short,
            "means": text.means,
            "would": would_text(reason.value),
            "would_do": would_do(reason.value, (), ""),
        }
        for reason, text in REASON_TEXTS.items()
    }
    return json_codec.dumps({"reasons": reasons, "slurm": SLURM_WORDS})
