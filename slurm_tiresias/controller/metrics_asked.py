"""The metrics for commands on the controller's host that cannot use the port.

They identify neither jobs nor users, so every user of the host may read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slurm_tiresias import json_codec
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.extras import how_to_install
from slurm_tiresias.status.ask import ask
from slurm_tiresias.status.service import Question, Service

if TYPE_CHECKING:
    from slurm_tiresias.controller.metrics import Metrics

SCHEMA = 1
REQUEST = "metrics"
NEEDED = "prometheus_client"


def metrics_service(metrics: Metrics | None) -> Service:
    """Make the service that returns the metrics, or names the library that it lacks."""

    def answer(_question: Question) -> bytes:
        if metrics is None:
            raise TiresiasError(
                f"The controller has no metrics: {NEEDED} was not installed when it started",
                f"Do: {how_to_install((NEEDED,))}, and restart the controller",
            )
        return json_codec.dumps({"schema": SCHEMA, "text": metrics.page().body.decode()})

    return Service(answer)


def metrics_text(state_dir: Path) -> str:
    """Return the metrics in Prometheus' text format; raises the errors of ``ask``."""
    return ask(state_dir, REQUEST, SCHEMA, lambda raw: str(raw["text"]))
