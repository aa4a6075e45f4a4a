"""The process of forecasts: reads presents and questions, writes pictures and answers.

All other processes go first, and it ends with the controller.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import resource
import sys
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from slurm_tiresias import json_codec
from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.core.features.make import learned_policy
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.forecast.forecaster import Forecaster
from slurm_tiresias.forecast.futures import Drawn, Fork, Futures, Present
from slurm_tiresias.forecast.past import Past, PastJob
from slurm_tiresias.forecast.ranges import Calibration
from slurm_tiresias.forecast.sooner import Answer, Asked, answers
from slurm_tiresias.settings import Config
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.samples import Samples

log = logging.getLogger("tiresias-slurm")

NICENESS = 15
MEMORY_BYTES = 2 << 30
CPU_S = 4.0
"""CPU time of the futures of one picture at most: one picture a minute takes a tenth of a core."""

POLICY_S = 300.0
"""How often the policy learns from the ledger, as the controller's does."""

MOST_PAST = 5000
FILE_NAME = "forecasts.json"

Question = tuple[int, str | Asked]
"""A number, and the id of a waiting job or a job that is not submitted."""


class Worker:
    """Makes a picture of each present, and answers questions about the last one meanwhile."""

    def __init__(self, connection: Connection, config: Config, ledger: Path) -> None:
        self._connection = connection
        self._config = config
        self._ledger = ledger
        self._file = Path(config.controller.state_dir) / FILE_NAME
        self._forecaster = Forecaster(self._calibration())
        self._policy: Policy | None = None
        self._learned_s = -math.inf
        self._made: Futures | None = None
        self._next: Present | None = None

    def _calibration(self) -> Calibration | None:
        try:
            return json_codec.build(Calibration, json_codec.loads(self._file.read_bytes()))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def run(self) -> None:
        """Work until the controller is gone."""
        while True:
            while self._next is None:
                self._take()
            at, self._next = self._next, None
            try:
                self._look(at)
            except (TiresiasError, OSError) as error:
                log.warning("no forecast: %s", error)

    def _look(self, at: Present) -> None:
        with closing(Ledger.to_read(self._ledger)) as ledger:
            ended = (PastJob(*row) for row in ledger.jobs.past(MOST_PAST))
            past = Past([*ended, *(PastJob.of(job, ended=False) for job in at.jobs)], at.now_s)
            if self._policy is None or not 0 <= at.now_s - self._learned_s < POLICY_S:
                samples = Samples(ledger)
                self._policy = learned_policy(self._config.policy, lambda: samples.latest(at.now_s))
                self._learned_s = at.now_s
            self._made = Futures(at, self._config, past, self._policy)
            gc.freeze()
            picture = self._forecaster.look(
                self._made,
                CPU_S,
                lambda key, since_s: min(
                    (run.start_s for run in ledger.runs.of(key) if run.start_s >= since_s),
                    default=None,
                ),
                self._answer_all,
            )
        text = json_codec.dumps({"awaited": self._forecaster.calibration.awaited})
        write_atomically(self._file, text, 0o600)
        self._connection.send(picture)

    def _answer_all(self, future: Fork[Drawn]) -> None:
        """Take messages until a future is ready."""
        done = future.fileno()
        while (ready := wait([self._connection, done], future.left_s)) and done not in ready:
            self._take()

    def _take(self) -> None:
        """Take a message of the controller: a present, or a question to be answered at once."""
        message = self._connection.recv()
        if isinstance(message, Present):
            self._next = message
            return
        number, about = message
        self._connection.send((number, self._answer(about)))

    def _answer(self, about: str | Asked) -> list[Answer]:
        made = self._made
        if made is None:
            return []
        partitions = self._config.manage.partitions
        job: Job | None
        if isinstance(about, Asked):
            job = about.as_job(made.at.now_s, partitions)
        else:
            job = made.jobs.get(about) if about in made.waiting else None
        if job is None:
            return []
        return answers(made, job, self._forecaster.calibration, partitions)


def main() -> None:
    """Serve the controller at the inherited socket whose number is the argument."""
    # A service manager may forbid these; its own limits hold then.
    with suppress(OSError):
        os.nice(NICENESS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # If memory runs out all the same, it is this process that ends, not the controller.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    connection = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError):
        Worker(connection, *connection.recv()).run()


if __name__ == "__main__":
    main()
