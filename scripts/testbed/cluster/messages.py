"""The messages and errors of the cluster's commands."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence


class UsageError(Exception):
    """An invalid or unsatisfiable request: exit status 2."""


class ClusterError(Exception):
    """The cluster failed: exit status 1."""


class StoppedBySignalError(Exception):
    """A signal asked `up` to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.status = 128 + signal_number


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def say(text: str) -> None:
    # If the caller closed stderr, print() would write to stdout, which may be read by an eval.
    if sys.stderr is not None:
        print(f"cluster: {text}", file=sys.stderr, flush=True)


def last_words(lines: Sequence[str], pattern: str, most: int = 6) -> list[str]:
    """Return the last lines that match, or just the last lines, without duplicates."""
    without_time = r"^[\[<\d][^ ]*\d\d:\d\d[^ ]* |^\S+: "
    filled = [line.strip() for line in lines if line.strip()]
    telling = [line for line in filled if re.search(pattern, line, re.IGNORECASE)] or filled
    distinct = {re.sub(without_time, "", line): line for line in telling}
    return list(distinct.values())[-most:]
