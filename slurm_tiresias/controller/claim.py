"""Claims as they stand in the ledger: what a job is to get on named nodes."""

from __future__ import annotations

import json

from slurm_tiresias.controller.ledger import JobRecord
from slurm_tiresias.model import Allocation, Amount


def claim_of(record: JobRecord) -> Allocation | None:
    """What a record claims on named nodes."""
    if not record.claim:
        return None
    return {
        node: Amount(gpus=amount["gpus"], cpus=amount["cpus"], memory_mb=amount["memory_mb"])
        for node, amount in json.loads(record.claim).items()
    }


def claim_text(allocation: Allocation) -> str:
    """How a claim stands in the ledger."""
    return json.dumps(
        {
            node: {"gpus": dict(amount.gpus), "cpus": amount.cpus, "memory_mb": amount.memory_mb}
            for node, amount in allocation.items()
        }
    )
