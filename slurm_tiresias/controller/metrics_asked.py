"""The metrics over a Unix socket, for commands on the controller's host that cannot use the port.

They identify neither jobs nor users, so every user of the host may read them.
"""

from __future__ import annotations

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
TEXT = "text"
"""The question, and the answer's field: all metrics in Prometheus' text format."""

ANSWER_S = 15.0


def metrics_service(state_dir: Path, metrics: Metrics | None) -> Service:
    """Make the service that returns the metrics, or names the library that it lacks."""

    def answer(_question: Question) -> bytes:
        if metrics is None:
            return json_codec.dumps({"schema": SCHEMA, "lacks": NEEDED})
        return json_codec.dumps({"schema": SCHEMA, TEXT: metrics.page().body.decode()})

    return Service(state_dir / SOCKET_NAME, answer)


def metrics_text(state_dir: Path) -> str:
    """Return the metrics of the controller that acts on this host, in Prometheus' text format.

    Raises ``NotRunningError`` if no controller acts here, ``TiresiasError`` if it lacks the
    library, and ``RefusedError`` if it refuses.
    """
    try:
        answer = answer_of(state_dir / SOCKET_NAME, f"{TEXT}\n".encode(), ANSWER_S)
    except OSError as error:
        raise NotRunningError(
            f"No controller answers in {state_dir} on this host ({error.strerror or error})",
            "Start it with: tiresias-slurm controller --config FILE, or ask on its own host",
        ) from error
    try:
        told = checked_answer(answer, SCHEMA)
        if "lacks" not in told:
            return str(told[TEXT])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotRunningError(
            f"What answers at {state_dir / SOCKET_NAME} is not a controller of this version",
            "Restart the controller with the same version as this command",
        ) from error
    raise TiresiasError(
        f"The controller has no metrics: {told['lacks']} was not installed when it started",
        f"Do: {how_to_install((NEEDED,))}, and restart the controller",
    )
