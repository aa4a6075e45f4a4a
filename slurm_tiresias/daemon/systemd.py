"""Notifications to systemd."""

from __future__ import annotations

import logging
import os
import socket
import time

log = logging.getLogger("tiresias-slurm")

MOST_STATUS_CHARACTERS = 400
PINGS_A_WATCHDOG = 4
"""So often it hears from this process in the time (WatchdogSec) after which it would end it."""
PING_EVERY_S = 60.0
"""Where there is no watchdog."""


class Systemd:
    """The notification protocol of systemd: one datagram each time, where it listens at all."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        watchdog_us = os.environ.get("WATCHDOG_USEC", "")
        self.ping_every_s = PING_EVERY_S
        if watchdog_us.isdecimal() and int(watchdog_us) > 0:
            self.ping_every_s = min(PING_EVERY_S, int(watchdog_us) / 1e6 / PINGS_A_WATCHDOG)
        self._sent_s = time.monotonic()

    def tell(self, status: str) -> None:
        """Say that this process is ready and alive, and how it is."""
        line = " ".join(status.split())[:MOST_STATUS_CHARACTERS]
        self._send(f"READY=1\nWATCHDOG=1\nSTATUS={line}")

    def ping(self) -> None:
        """Say that this process is alive, where that has not been said for ``ping_every_s``."""
        if time.monotonic() - self._sent_s >= self.ping_every_s:
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        self._sent_s = time.monotonic()
        if not self._address:
            return
        address = self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.setblocking(False)
            try:
                notifier.connect("\0" + address[1:] if address.startswith("@") else address)
                notifier.send(text.encode())
            except OSError as error:
                log.warning("systemd cannot be notified: %s", error)
