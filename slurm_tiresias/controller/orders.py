"""What an administrator orders for one job: to go first for a while, or to be Slurm's own again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.errors import TiresiasError, UsageError


def obey(job_store: JobStore, command: str, words: Sequence[str], by: str) -> None:
    """Record one of ``ask.COMMANDS`` with a job's id, and perhaps a time, as its text.

    The id of an array stands for all of its tasks. Raises ``TiresiasError`` if the job is not
    known, and ``UsageError`` if the time is none.
    """
    orders: dict[str, Any] = {"handed_back": command == "hand-back"}
    kind, text = ("handed-back" if command == "hand-back" else "resumed"), by
    if command == "boost":
        try:
            until_s = float(words[1])
            until = datetime.fromtimestamp(until_s).isoformat(sep=" ", timespec="minutes")
        except (IndexError, ValueError, OverflowError, OSError):
            raise UsageError("A boost lasts until a time", "Give it") from None
        orders, kind, text = {"boosted_until_s": until_s}, "boosted", f"{by}, until {until}"
    found = [
        account
        for account in job_store.accounts.all.values()
        if account.ended_s is None and words[0] in (account.key, account.key.partition("_")[0])
    ]
    if not found:
        raise TiresiasError(
            f"There is no job {words[0]} that waits or runs in a managed partition",
            "See: tiresias-slurm status",
        )
    for account in found:
        job_store.accounts.put(replace(account, **orders))
        job_store.events.note(time.time(), kind, account.key, text)
    job_store.commit()
