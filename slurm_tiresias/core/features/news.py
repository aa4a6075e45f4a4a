"""What the core has recorded: events of jobs, and what the ledger keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Happened(NamedTuple):
    """An event of a job for its user to read."""

    job_id: str
    kind: str
    text: str
    once: bool = False
    """Whether it is recorded only if the same has not been, as after a restart."""


class Remember(NamedTuple):
    """Fields of a job's account that the ledger is to keep, or of the job's run that began then."""

    job_id: str
    fields: Mapping[str, Any]
    run_start_s: float | None = None
