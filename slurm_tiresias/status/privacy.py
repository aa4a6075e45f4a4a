"""What each user sees of the published state if Slurm keeps jobs private.

``PrivateData`` hides a user's jobs from all others but operators (docs/explanation/security.md).
Then only the controller can read the published file, and users ask it at its socket.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from slurm_tiresias import json_codec
from slurm_tiresias.status.published import (
    PublishedHold,
    PublishedJob,
    PublishedNode,
    PublishedState,
)
from slurm_tiresias.status.service import Question, Service


def seen_by(state: PublishedState, user: str) -> PublishedState:
    """Return the state with only this user's jobs and their events.

    Sums over all jobs stay, as do the numbers of GPUs in use on each node, and the bare ids of
    other jobs that the user's jobs make room for or wait for, with the reason.
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
    """Remove the times that reveal since when other users' jobs have run."""
    blockers = (b if b.job_id in mine else replace(b, until_s=None) for b in job.blockers)
    return replace(job, blockers=tuple(blockers))


def _without_others(node: PublishedNode, mine: Container[str]) -> PublishedNode:
    """Merge others' holds of a node: their tiers would show a user on which nodes to preempt."""
    held = [hold for hold in node.held if hold.job_id in mine]
    if others := sum(hold.gpus for hold in node.held if hold.job_id not in mine):
        held.append(PublishedHold("", others, None))
    return replace(node, held=tuple(held))


class Views:
    """The service that answers each user with the visible part of the latest state."""

    def __init__(self, state: PublishedState) -> None:
        self.service = Service(self._text_for, ready=lambda each: self._shown[1].get(each.peer.uid))
        self.show(state)

    def show(self, state: PublishedState) -> None:
        """Answer from this state from now on; drop the answers cached by uid."""
        self._shown: tuple[PublishedState, dict[int, bytes]] = state, {}

    def _text_for(self, question: Question) -> bytes:
        state, texts = self._shown
        peer = question.peer
        if peer.uid not in texts:
            seen = state if peer.sees_everything else seen_by(state, peer.name)
            texts[peer.uid] = json_codec.dumps(seen)
        return texts[peer.uid]
