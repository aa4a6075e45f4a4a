"""A warning that comes once, until what it complains of is over."""

from __future__ import annotations

import logging

log = logging.getLogger("tiresias-slurm")


class Complaint:
    """Says in the log what cannot be done for now, not in every cycle again."""

    def __init__(self, what_fails: str) -> None:
        self._what_fails = what_fails
        self._why = ""

    def make(self, why: object) -> None:
        if str(why) != self._why:
            log.warning("%s: %s", self._what_fails, why)
        self._why = str(why)

    def is_over(self) -> None:
        self._why = ""
