"""Stop a command in order: its cleanup is not interrupted."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_in_order() -> None:
    """Let the first signal to stop end the command by ``SystemExit``, and ignore further ones."""
    for number in SIGNALS:
        signal.signal(number, _stop)


def ignore() -> None:
    """Ignore signals to stop from now on."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    ignore()
    print(f"stopped by {signal.Signals(number).name}", file=sys.stderr, flush=True)
    sys.exit(128 + number)
