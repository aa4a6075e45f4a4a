"""What systemd is told."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger("tiresias-slurm")

MOST_STATUS_CHARACTERS = 400


def tell_systemd(status: str) -> None:
    """The notification protocol of systemd: one datagram, where it listens at all.

    It says that this process is ready and alive, and how it is.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    line = " ".join(status.split())[:MOST_STATUS_CHARACTERS]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        try:
            notifier.connect("\0" + address[1:] if address.startswith("@") else address)
            notifier.send(f"READY=1\nWATCHDOG=1\nSTATUS={line}".encode())
        except OSError as error:
            log.warning("systemd cannot be notified: %s", error)
