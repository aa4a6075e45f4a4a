"""When waiting jobs will start, as it is published, and as users ask for it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.core.features.feature import Explained, Feature
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.errors import RefusedError
from slurm_tiresias.forecast.futures import present
from slurm_tiresias.forecast.past import MOST_AHEAD_S
from slurm_tiresias.forecast.process import ForecastProcess
from slurm_tiresias.forecast.ranges import Range
from slurm_tiresias.forecast.sooner import Answer, Asked
from slurm_tiresias.model import JobAccount, JobState
from slurm_tiresias.settings import Config
from slurm_tiresias.status.published import PublishedStart, PublishedState
from slurm_tiresias.status.service import Question, Service
from slurm_tiresias.status.when import SCHEMA

TOO_FEW = "too few jobs of this site have ended or started since its forecasts began"
NOT_HELD = "too few of the latest ranges at this site have held"
WITHIN_S = 12.0
MOST_GPUS = 100_000


class Forecasts(Feature):
    """Shows the last picture of the forecasts, and has the next one made."""

    def __init__(self, config: Config, ledger: Path) -> None:
        self.process = ForecastProcess(config, ledger)

    def offer(self, snapshot: Snapshot) -> None:
        """Have a picture of this snapshot made, if one is due."""
        if self.process.is_due:
            self.process.offer(present(snapshot.now_s, snapshot.nodes, snapshot.jobs))

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        picture = self.process.picture
        if picture is None or job.state is not JobState.PENDING:
            return None
        # A job that has run since waits anew.
        since_s = job.submitted_s if job.queued_s is None else job.queued_s
        if since_s > picture.made_s or job.job_id not in picture.raw:
            return None
        found = None if picture.is_bad else picture.corrected[job.job_id]
        why_not = "" if found else NOT_HELD if picture.is_bad else TOO_FEW
        start = _published(found, picture.made_s, picture.days, why_not)
        return Explained(facts={"start": start})

    def service(self, shown: Callable[[], PublishedState], *, private: bool) -> Service:
        """Make the service for questions about one job; ``shown`` returns the published state. If
        ``private``, each user may only ask about its own jobs."""

        def answer(question: Question) -> bytes:
            asked = _read(question.text, question.peer.name)
            if isinstance(asked, str):
                mine = question.peer.name if private and not question.peer.sees_everything else None
                if not any(_is(job.job_id, job.user, asked, mine) for job in shown().jobs):
                    raise RefusedError(f"No job {asked} waits here", "See: tiresias-slurm status")
            try:
                found = self.process.ask(asked, WITHIN_S)
            except TimeoutError:
                raise RefusedError("The forecast took too long", "Ask again later") from None
            picture = self.process.picture
            made_s, days = (picture.made_s, picture.days) if picture else (0.0, 0.0)
            answers = [_as_json(each, made_s, days) for each in found]
            return json_codec.dumps({"schema": SCHEMA, "answers": answers})

        return Service(answer, long=True, remedy="Ask again later")


def _is(job_id: str, user: str, asked: str, only_of: str | None) -> bool:
    return job_id == asked and only_of in (None, user)


def _as_json(answer: Answer, made_s: float, days: float) -> dict[str, Any]:
    why_not = "" if answer.range else TOO_FEW
    start = _published(answer.range, made_s, days, why_not)
    return {"what": answer.what, "value": answer.value, "start": start}


def _published(found: Range | None, made_s: float, days: float, why_not: str) -> PublishedStart:
    start = PublishedStart(made_s, days, made_s + MOST_AHEAD_S, why_not=why_not)
    for name, after_s in found._asdict().items() if found else ():
        setattr(start, name, made_s + after_s if after_s < math.inf else None)
    return start


def _read(text: str, user: str) -> str | Asked:
    """Read a question: a job id, or what a job would ask for, as JSON."""
    if not text.startswith("{"):
        return text
    try:
        raw = json.loads(text)
        asked = Asked(
            user=user,
            name=str(raw["name"]),
            gpus=int(raw["gpus"]),
            gpu_type=str(raw["gpu_type"]),
            nodes=int(raw["nodes"]),
            partition=str(raw["partition"]),
            limit_s=None if raw["limit_s"] is None else float(raw["limit_s"]),
        )
    except (ValueError, TypeError, KeyError):
        raise RefusedError("This is no question about a job", "Use: tiresias-slurm when") from None
    gpus = asked.gpus * max(1, asked.nodes)
    if not (0 < gpus <= MOST_GPUS and asked.nodes >= 0 and (asked.limit_s or 1.0) > 0.0):
        raise RefusedError("This asks for no possible number of GPUs", "Ask for at least one")
    return asked
