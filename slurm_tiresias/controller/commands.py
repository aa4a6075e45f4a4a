"""Commands of administrators: requests to the socket that the controller's loop carries out."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.errors import SlurmPermissionError, TiresiasError
from slurm_tiresias.status.ask import COMMAND_SCHEMA, COMMANDS
from slurm_tiresias.status.service import Question, Service, Text


class Commands:
    """The commands that wait for the loop; ``wake`` makes it call ``carry_out``."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: queue.SimpleQueue[tuple[str, Question, Future[Text]]] = queue.SimpleQueue()

    def services(self) -> Mapping[str, Service]:
        return {name: Service(ready=partial(self._take, name)) for name in COMMANDS}

    def _take(self, name: str, question: Question) -> Future[Text]:
        if not question.peer.sees_everything:
            raise SlurmPermissionError(
                "This user may not control the controller",
                "Run this command as the user the controller runs as, or as root",
            )
        answer: Future[Text] = Future()
        self._waiting.put((name, question, answer))
        self._wake()
        return answer

    def carry_out(self, obey: Callable[[str, Question], Mapping[str, Any]]) -> None:
        """Carry out the waiting commands, except those whose client has given up."""
        while not self._waiting.empty():
            name, question, answer = self._waiting.get()
            if question.is_over() or not answer.set_running_or_notify_cancel():
                answer.cancel()
                continue
            try:
                told = obey(name, question)
                answer.set_result(json_codec.dumps({"schema": COMMAND_SCHEMA, **told}))
            except TiresiasError as error:
                error.what = f"The command failed in the controller: {error.what}"
                answer.set_exception(error)
