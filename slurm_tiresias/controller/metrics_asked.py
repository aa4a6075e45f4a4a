"""The metrics for a command on the controller's host: what is at ``/metrics``, without a port.

They tell neither jobs nor users apart, so every user of the host may ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_tiresias import json_codec
from slurm_tiresias.errors import NotRunningError, TiresiasError
from slurm_tiresias.extras import how_to_install
from slurm_tiresias.status.answers import Question, Service
from slurm_tiresias.status.published import answer_of, checked_answer

if TYPE_CHECKING:
    from slurm_tiresias.controller.metrics import Metrics

SCHEMA = 1
SOCKET_NAME = "metrics.sock"
NEEDED = "prometheus_client"
TEXT, SAMPLES = "text", "samples"
"""What may be asked for: Prometheus' text format, or each value."""

ANSWER_S = 15.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. A histogram has several, whose names have endings, such as ``_bucket``."""

    name: str
    labels: Mapping[str, str]
    value: float


def metrics_service(state_dir: Path, metrics: Metrics | None) -> Service:
    """Tells the metrics; without them, what the controller lacks."""

    def answer(question: Question) -> bytes:
        if metrics is None:
            return json_codec.dumps({"schema": SCHEMA, "lacks": NEEDED})
        if question.text == SAMPLES:
            return json_codec.dumps({"schema": SCHEMA, SAMPLES: metrics.samples()})
        return json_codec.dumps({"schema": SCHEMA, TEXT: metrics.page().body.decode()})

    return Service(state_dir / SOCKET_NAME, answer)


def metrics_text(state_dir: Path) -> str:
    """The metrics of the controller that acts on this host, as Prometheus reads them.

    ``NotRunningError`` where none does, ``TiresiasError`` where it lacks the library,
    ``RefusedError`` where it refuses.
    """
    return str(_asked(state_dir, TEXT))


def metrics_samples(state_dir: Path) -> list[Sample]:
    """Each of their values; raises what ``metrics_text`` does."""
    samples = _asked(state_dir, SAMPLES)
    assert isinstance(samples, list)
    return [Sample(**sample) for sample in samples]


def _asked(state_dir: Path, question: str) -> object:
    try:
        answer = answer_of(state_dir / SOCKET_NAME, f"{question}\n".encode(), ANSWER_S)
    except OSError as error:
        raise NotRunningError(
            f"No controller answers in {state_dir} on this host ({error.strerror or error})",
            "Start it with: tiresias-slurm controller --config FILE, or ask on its own host",
        ) from error
    try:
        told = checked_answer(answer, SCHEMA)
        if "lacks" not in told:
            return told[question]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotRunningError(
            f"What answers at {state_dir / SOCKET_NAME} is not a controller of this version",
            "Restart the controller with the same version as this command",
        ) from error
    raise TiresiasError(
        f"The controller has no metrics: {told['lacks']} was not installed when it started",
        f"Do: {how_to_install((NEEDED,))}, and restart the controller",
    )
