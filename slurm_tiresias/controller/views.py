"""Where Slurm keeps jobs private, what each user sees of the published state.

``PrivateData=jobs`` in slurm.conf hides a user's jobs from all others but operators. The published
state is then the controller's own file, and users ask a socket beside it. Nothing is read from
them: the kernel says who has connected, and what that user may see is the answer.
"""

from __future__ import annotations

import socket
from collections.abc import Container
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from slurm_tiresias.controller.answers import Answers, peer_of
from slurm_tiresias.controller.published import VIEW_NAME, PublishedNode, PublishedState, text_of


def seen_by(state: PublishedState, user: str) -> PublishedState:
    """The state with the jobs of this user only, and what happened to them.

    Sums over all jobs stay, so does what jobs of each tier hold of a node, and so do the bare ids
    of jobs that one of the user's makes room for or waits for.
    """
    mine = {job.job_id for job in state.jobs if user and job.user == user}
    return replace(
        state,
        jobs=tuple(job for job in state.jobs if job.job_id in mine),
        events=tuple(e for e in state.events if e.job_id in mine or e.other in mine),
        nodes=tuple(_without_others(node, mine) for node in state.nodes),
        only_of=user or "nobody",
    )


def _without_others(node: PublishedNode, mine: Container[str]) -> PublishedNode:
    held = (hold if hold.job_id in mine else replace(hold, job_id="") for hold in node.held)
    return replace(node, held=tuple(held))


class Views:
    """Shows every user the latest state, as far as it is theirs to see."""

    def __init__(self, state_dir: Path, state: PublishedState) -> None:
        self._answers = Answers(state_dir / VIEW_NAME, self._text_for)
        self.show(state)

    def show(self, state: PublishedState) -> None:
        """From now on answer from this state. Beside it are kept the answers to those who have
        asked since, by uid."""
        self._shown: tuple[PublishedState, dict[int, bytes]] = state, {}

    def open(self) -> AbstractContextManager[None]:
        """Answer until the end of the block."""
        return self._answers.open()

    def _text_for(self, connection: socket.socket) -> bytes:
        state, texts = self._shown
        peer = peer_of(connection)
        if peer.uid not in texts:
            seen = state if peer.sees_everything else seen_by(state, peer.name)
            texts[peer.uid] = text_of(seen)
        return texts[peer.uid]
