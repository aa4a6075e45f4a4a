"""How the controller's log lines are written to standard error."""

from __future__ import annotations

import logging
import os
import sys

from slurm_tiresias.cli.text import printable

PLAIN = "%(levelname)s: %(message)s"
TIMED = "%(asctime)s.%(msecs)03d %(levelname)s: %(message)s"
TIME = "%Y-%m-%d %H:%M:%S"


class OneLine(logging.Formatter):
    """A record is one printable line: Slurm's words, which it may repeat, are hostile."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))


def log_to_stderr(debug: bool = False) -> None:
    """Begin to log; systemd's journal notes the time of each line by itself."""
    handler = logging.StreamHandler(sys.stderr)
    # A terminal started by a service inherits the variable, but not the journal.
    in_journal = "JOURNAL_STREAM" in os.environ and not sys.stderr.isatty()
    handler.setFormatter(OneLine(PLAIN if in_journal else TIMED, TIME))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])
