"""When waiting jobs will start, as it is published, and as users ask for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.core.features.feature import Explained, Feature
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.errors import RefusedError, TiresiasError
from slurm_tiresias.forecast.forecaster import Picture
from slurm_tiresias.forecast.futures import present
from slurm_tiresias.forecast.past import MOST_AHEAD_S
from slurm_tiresias.forecast.process import ForecastProcess
from slurm_tiresias.forecast.ranges import Range
from slurm_tiresias.forecast.sooner import AS_IT_IS, Asked
from slurm_tiresias.model import JobAccount, JobState
from slurm_tiresias.settings import Config
from slurm_tiresias.status.published import PublishedCoverage, PublishedStart, PublishedState
from slurm_tiresias.status.service import Question, Service
from slurm_tiresias.status.when import SCHEMA

NOT_ACTING = "while the controller does not act, Slurm's own order decides (squeue --start)"
NOT_HELD = "too few of the latest ranges at this site have held"
WITHIN_S = 12.0
MOST_GPUS = 100_000


ASKED: Mapping[str, Callable[[Any], Any]] = {
    "name": str,
    "gpus": int,
    "gpu_type": str,
    "nodes": int,
    "partition": str,
    "limit_s": float,
}
"""The fields of a question, with their types."""


class Forecasts(Feature):
    """Shows the last picture of the forecasts, and has the next one made."""

    def __init__(self, config: Config, ledger: Path) -> None:
        self.process = ForecastProcess(config, ledger)

    def offer(self, snapshot: Snapshot, *, acts: bool) -> None:
        """Have a picture of this snapshot made, if one is due. While the controller does not act,
        Slurm's own order decides, and nothing is forecast."""
        if not acts:
            self.process.picture = None
        elif self.process.is_due:
            self.process.offer(present(snapshot.now_s, snapshot.nodes, snapshot.jobs))

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        picture = self.process.picture
        if picture is None or job.state is not JobState.PENDING:
            return None
        # A job that has run since waits anew.
        since_s = job.submitted_s if job.queued_s is None else job.queued_s
        if since_s > picture.made_s or job.job_id not in picture.ranges:
            return None
        return Explained(facts={"start": _published(picture.ranges[job.job_id], picture)})

    @property
    def coverage(self) -> PublishedCoverage | None:
        """How often ranges have held."""
        picture = self.process.picture
        return PublishedCoverage(*picture.coverage) if picture else None

    def service(self, shown: Callable[[], PublishedState], *, private: bool) -> Service:
        """Make the service for questions about one job; ``shown`` returns the published state. If
        ``private``, each user may only ask about its own jobs."""

        def answer(question: Question) -> bytes:
            peer, state = question.peer, shown()
            asked = _read(question.text, peer.name)
            if isinstance(asked, str):
                owners = [job.user for job in state.jobs if job.job_id == asked]
                if not owners or (private and not peer.sees_everything and peer.name not in owners):
                    raise TiresiasError(f"No job {asked} waits here", "See: tiresias-slurm status")
            picture = self.process.picture if state.acts else None
            answers = []
            if not state.acts:
                start = PublishedStart(state.at_s, 0.0, state.at_s, why_not=NOT_ACTING)
                answers.append({"what": AS_IT_IS, "value": "", "start": start})
            for what, value, found in self.process.ask(asked, WITHIN_S) if picture else ():
                assert picture
                start = _published(found, picture)
                answers.append({"what": what, "value": value, "start": start})
            return json_codec.dumps({"schema": SCHEMA, "answers": answers})

        return Service(answer, long=True, remedy="Ask again later")


def _published(found: Range | None, picture: Picture) -> PublishedStart:
    """Return what is shown of a range: none of its limits that are later than futures look."""
    made_s = picture.made_s
    if found is None:
        return PublishedStart(made_s, picture.days, made_s, why_not=NOT_HELD)
    known = {name: s for name, s in found._asdict().items() if s < MOST_AHEAD_S}
    beyond_s = max(known.values(), default=MOST_AHEAD_S)
    start = PublishedStart(made_s, picture.days, made_s + beyond_s)
    for name, after_s in known.items():
        setattr(start, name, made_s + after_s)
    return start


def _read(text: str, user: str) -> str | Asked:
    """Read a question: a job id, or what a job would ask for, as JSON."""
    if not text.startswith("{"):
        return text
    try:
        raw = json.loads(text)
        asked = Asked(user, *(kind(raw[name]) for name, kind in ASKED.items()))
    except (ValueError, TypeError, KeyError, OverflowError):
        raise RefusedError("This is no question about a job", "Use: tiresias-slurm when") from None
    gpus = asked.gpus * max(1, asked.nodes)
    if not (0 < gpus <= MOST_GPUS and asked.nodes >= 0 and asked.limit_s >= 0.0):
        raise RefusedError("This asks for no possible number of GPUs", "Ask for at least one")
    return asked
