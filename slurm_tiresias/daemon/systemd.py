"""Notifications to systemd."""

from __future__ import annotations

import logging
import os
import socket
import time

log = logging.getLogger("tiresias-slurm")

MOST_STATUS_CHARACTERS = 400
PINGS_A_WATCHDOG = 4
"""How many pings are sent per WatchdogSec, after which systemd would kill this process."""
PING_EVERY_S = 60.0
"""The longest time between pings, also used without a watchdog."""


class Systemd:
    """Sends datagrams of systemd's notification protocol; does nothing without NOTIFY_SOCKET."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        watchdog_us = os.environ.get("WATCHDOG_USEC", "")
        self.ping_every_s = PING_EVERY_S
        if watchdog_us.isdecimal() and int(watchdog_us) > 0:
            self.ping_every_s = min(PING_EVERY_S, int(watchdog_us) / 1e6 / PINGS_A_WATCHDOG)
        self._sent_s = time.monotonic()

    def tell(self, status: str) -> None:
        """Notify systemd that this process is ready and alive, with a status line."""
        line = " ".join(status.split())[:MOST_STATUS_CHARACTERS]
        self._send(f"READY=1\nWATCHDOG=1\nSTATUS={line}")

    def ping(self) -> None:
        """Notify systemd that this process is alive, at most every ``ping_every_s``."""
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
