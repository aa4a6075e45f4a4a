"""Where Slurm keeps jobs private, what each user sees of the published state.

``PrivateData`` hides a user's jobs from all others but operators (docs/security.md). The published
state is then the controller's own file, and users ask a socket beside it. They say nothing to
it: the kernel says who has connected, and what that user may see is the answer.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from slurm_tiresias import json_codec
from slurm_tiresias.status.answers import Question, Service
from slurm_tiresias.status.published import (
    VIEW_NAME,
    PublishedHold,
    PublishedJob,
    PublishedNode,
    PublishedState,
)


def seen_by(state: PublishedState, user: str) -> PublishedState:
    """The state with the jobs of this user only, and what happened to them.

    Sums over all jobs stay, so does how many GPUs of a node are held, and so do the bare ids of
    other jobs: of those that one of the user's makes room for, or waits for and why.
    """
    own_jobs = [job for job in state.jobs if user and job.user == user]
    mine = {job.job_id for job in own_jobs}
    return replace(
        state,
        jobs=tuple(_without_moments_of_others(job, mine) for job in own_jobs),
        events=tuple(
            event if not event.job_id or event.job_id in mine else replace(event, text="")
            for event in state.events
            if not event.job_id or event.job_id in mine or event.other in mine
        ),
        nodes=tuple(_without_others(node, mine) for node in state.nodes),
        only_of=user or "nobody",
    )


def _without_moments_of_others(job: PublishedJob, mine: Container[str]) -> PublishedJob:
    """The job, without the moments that would tell since when another user's job runs."""
    blockers = (b if b.job_id in mine else replace(b, until_s=None) for b in job.blockers)
    return replace(job, blockers=tuple(blockers))


def _without_others(node: PublishedNode, mine: Container[str]) -> PublishedNode:
    """The node, with what all other jobs hold of it in one sum: by tiers, a user could look for a
    node where to preempt."""
    held = [hold for hold in node.held if hold.job_id in mine]
    if others := sum(hold.gpus for hold in node.held if hold.job_id not in mine):
        held.append(PublishedHold("", others, None))
    return replace(node, held=tuple(held))


class Views:
    """Shows every user the latest state, as far as it is theirs to see."""

    def __init__(self, state_dir: Path, state: PublishedState) -> None:
        self.service = Service(
            state_dir / VIEW_NAME,
            self._text_for,
            silent=True,
            ready=lambda uid: self._shown[1].get(uid),
        )
        self.show(state)

    def show(self, state: PublishedState) -> None:
        """From now on answer from this state. Beside it are kept the answers to those who have
        asked since, by uid."""
        self._shown: tuple[PublishedState, dict[int, bytes]] = state, {}

    def _text_for(self, question: Question) -> bytes:
        state, texts = self._shown
        peer = question.peer
        if peer.uid not in texts:
            seen = state if peer.sees_everything else seen_by(state, peer.name)
            texts[peer.uid] = json_codec.dumps(seen)
        return texts[peer.uid]
