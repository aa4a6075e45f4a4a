"""Programs that have passed a drill, which the site may let run for less before a preemption.

A user's ``tiresias-slurm drill`` says so at a socket. What it says is not checked, and need not be:
a lie only makes the liar's own jobs easier to preempt.
"""

from __future__ import annotations

import queue
import re
from pathlib import Path
from typing import Final

from slurm_tiresias import json_codec
from slurm_tiresias.errors import RefusedError
from slurm_tiresias.status.answers import Question, Service
from slurm_tiresias.status.published import answer_of, checked_answer
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import DrilledProgram

SCHEMA = 1
SOCKET_NAME = "drill.sock"
PASSED, FAILED = "passed", "failed"

DRILLED_FOR_S: Final = 90 * 86_400.0
"""After that a program has to pass another drill: it will have changed."""

MOST_OF_A_USER: Final = 100
"""How many programs of a user are remembered: the latest."""

MOST_WAITING: Final = 256
"""How much may be said between two cycles."""

ANSWER_S = 5.0

_SAID = re.compile(rf"({PASSED}|{FAILED}) ([0-9]{{1,10}}(?:_[0-9]{{1,10}})?)", re.ASCII)


class DrilledPrograms:
    """The users and job names of programs that have passed a drill."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._drilled = {(one.user, one.name): one.at_s for one in ledger.drilled()}
        self._said: queue.Queue[tuple[str, str, str]] = queue.Queue(MOST_WAITING)
        """The user, what became of a drill, and its job: put by the thread that answers users."""

    def __contains__(self, program: object) -> bool:
        return program in self._drilled

    def service(self, state_dir: Path) -> Service:
        """Make the service at which drills say how they ended."""
        return Service(state_dir / SOCKET_NAME, self._take, remedy="Try again in a minute")

    def _take(self, question: Question) -> bytes:
        said = _SAID.fullmatch(question.text)
        if said is None:
            raise RefusedError("That is not how a drill says how it ended", "Use drill")
        try:
            self._said.put_nowait((question.peer.name, said[1], said[2]))
        except queue.Full:
            raise RefusedError("Too many drills have ended just now", "Try again") from None
        return json_codec.dumps({"schema": SCHEMA, "noted": True})

    def follow(self, now_s: float) -> None:
        """Take in what was said since the last cycle, and forget what is too old."""
        known = {
            program: at_s
            for program, at_s in self._drilled.items()
            if at_s >= now_s - DRILLED_FOR_S
        }
        for _ in range(self._said.qsize()):
            user, outcome, key = self._said.get_nowait()
            account = self._ledger.job(key)
            if account is None or not user or account.user != user:
                continue
            known.pop((user, account.name), None)
            if outcome == PASSED:
                # The latest are the last.
                known[user, account.name] = now_s
                of_user = [program for program in known if program[0] == user]
                for program in of_user[:-MOST_OF_A_USER]:
                    del known[program]
        if known == self._drilled:
            return
        new = [
            DrilledProgram(user, name, at_s)
            for (user, name), at_s in known.items()
            if self._drilled.get((user, name)) != at_s
        ]
        self._ledger.save_drilled(new, self._drilled.keys() - known.keys())
        self._drilled = known


def say_how_it_ended(state_dir: Path, job_id: str, *, passed: bool) -> bool:
    """Tell the controller that acts on this host how a drill ended; whether it has noted it.

    Raises ``RefusedError`` if it refuses.
    """
    question = f"{PASSED if passed else FAILED} {job_id}\n".encode()
    try:
        answer = answer_of(state_dir / SOCKET_NAME, question, ANSWER_S)
        return bool(checked_answer(answer, SCHEMA).get("noted"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False
