"""The results of drills, which users report, and the programs that have passed in the ledger.

A user's ``tiresias-slurm drill`` reports the result, with the id of the drilled job.
The controller looks up whose job that was. It does not check whether the drill really passed, and
need not: a false report only makes the user's own jobs easier to preempt.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from slurm_tiresias import json_codec
from slurm_tiresias.core.features.drilled import Program, remembered
from slurm_tiresias.errors import RefusedError
from slurm_tiresias.status.ask import ask
from slurm_tiresias.status.service import Question, Service
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import DrilledProgram

SCHEMA = 1
REQUEST = "drill"
PASSED, FAILED = "passed", "failed"

MOST_WAITING: Final = 1024
MOST_WAITING_OF_A_USER: Final = 16
"""How many results are accepted between two cycles."""

LONGEST_S = 2.0

_SAID = re.compile(rf"({PASSED}|{FAILED}) ([0-9]{{1,10}}(?:_[0-9]{{1,10}})?)", re.ASCII)


class DrilledPrograms:
    """The users and job names of programs that have passed a drill."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        programs = ledger.drilled.select("ORDER BY at_s")
        self.programs: Mapping[Program, float] = {
            (one.user, one.name): one.at_s for one in programs
        }
        """When each passed, the latest last."""
        self._lock = threading.Lock()
        self._said: dict[Program, bool] = {}
        """The results that users have sent since the last cycle. They are put here by the thread
        that answers the socket, since only cycles may write the ledger."""

    @property
    def service(self) -> Service:
        """The service to which drills report their results."""
        return Service(self._take, remedy="Run the drill again later")

    def _take(self, question: Question) -> bytes:
        said = _SAID.fullmatch(question.text)
        if said is None:
            raise RefusedError("The message is not a drill result", "Use drill")
        program = self._program_of(said[2], question)
        with self._lock:
            if program not in self._said:
                of_users = Counter(user for user, _ in self._said)
                is_full = of_users.total() >= MOST_WAITING
                if is_full or of_users[program[0]] >= MOST_WAITING_OF_A_USER:
                    raise RefusedError("Too many drills have ended just now", "Run the drill again")
            self._said[program] = said[1] == PASSED
        return json_codec.dumps({"schema": SCHEMA, "noted": True})

    def _program_of(self, job_id: str, question: Question) -> Program:
        """Return the program of a user's own job, or of the tasks of an array."""
        user = question.peer.name
        with closing(Ledger.to_read(self._ledger.path, question.stop_after(LONGEST_S))) as reader:
            account = reader.jobs.one(job_id) or next(iter(reader.jobs.tasks_of(job_id, 1)), None)
        if account is None or not user or account.user != user:
            raise RefusedError(
                f"The controller has managed no job {job_id} of this user", "Run the drill again"
            )
        return account.user, account.name

    def follow(self, now_s: float) -> None:
        """Take in the results since the last cycle, and forget those that are too old."""
        with self._lock:
            said = dict(self._said)
        known = remembered(self.programs, said, now_s)
        if known is not self.programs:
            self._save(known)
        with self._lock:
            for program, passed in said.items():
                if self._said[program] == passed:
                    del self._said[program]

    def _save(self, known: Mapping[Program, float]) -> None:
        gone = self.programs.keys() - known.keys()
        changed = [
            DrilledProgram(*program, at_s)
            for program, at_s in known.items()
            if self.programs.get(program) != at_s
        ]
        if gone or changed:
            with self._ledger.transaction():
                self._ledger.drilled.put(changed)
                self._ledger.drilled.remove(gone)
        self.programs = known


def say_how_it_ended(state_dir: Path, job_id: str, *, passed: bool) -> None:
    """Report the result of a drill to the controller; raises the errors of ``ask``."""
    result = PASSED if passed else FAILED
    ask(state_dir, f"{REQUEST} {result} {job_id}", SCHEMA, lambda raw: raw["noted"])
