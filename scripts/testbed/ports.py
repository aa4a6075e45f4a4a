"""Free loopback ports for tests."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a loopback port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
