"""Log a warning once, and again only when its cause changes or returns."""

from __future__ import annotations

import logging

log = logging.getLogger("tiresias-slurm")


class WarnOnce:
    """A warning about what may fail in every cycle, logged only when its cause changes."""

    def __init__(self, what_fails: str) -> None:
        self._what_fails = what_fails
        self._why = ""

    def warn(self, why: object) -> None:
        if str(why) != self._why:
            log.warning("%s: %s", self._what_fails, why)
        self._why = str(why)

    def clear(self) -> None:
        self._why = ""
