"""The format of the controller's log lines on standard error."""

from __future__ import annotations

import logging
import os
import sys

from slurm_tiresias.text import printable

PLAIN = "%(levelname)s: %(message)s"
TIMED = "%(asctime)s.%(msecs)03d %(levelname)s: %(message)s"
TIME = "%Y-%m-%d %H:%M:%S"


class OneLine(logging.Formatter):
    """Formats a record as one printable line, since it may quote untrusted text from Slurm."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))


def log_to_stderr(debug: bool = False) -> None:
    """Set up logging; under systemd without times, since the journal adds its own."""
    handler = logging.StreamHandler(sys.stderr)
    # A terminal program started by a service inherits JOURNAL_STREAM, but writes to its terminal.
    in_journal = "JOURNAL_STREAM" in os.environ and not sys.stderr.isatty()
    handler.setFormatter(OneLine(PLAIN if in_journal else TIMED, TIME))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])
