"""Wait as a standby for the lease."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from slurm_tiresias.daemon.signals import Stop, Wakeups
from slurm_tiresias.daemon.systemd import Systemd
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.ha.lease import FileLease
from slurm_tiresias.slurm.protocol import Slurm

log = logging.getLogger("tiresias-slurm")


class StandbyController:
    """Waits until it gets the lease."""

    def __init__(self, slurm: Slurm, lease: FileLease, interval_s: float, stop: Stop) -> None:
        self._slurm = slurm
        self._lease = lease
        self._interval_s = interval_s
        self._stop = stop
        self._systemd = Systemd()
        self._asks_slurm_s = 0.0
        self._wanted = False

    def until_its_turn(self) -> bool:
        """Wait for the lease; return True once held, False if the process was asked to stop."""
        self._stop.catch()
        held = ""
        with Wakeups() as wakeups:
            while not self._stop.asked:
                if self._lease.take():
                    log.info("takes over: term %d on %s", self._lease.term, self._lease.host)
                    return True
                if held != self._lease.holder():
                    held = self._lease.holder()
                    log.info("stands by for %s", held or "no controller")
                self._say_so(held)
                wakeups.wait(self._lease.beat_s)
        self._lease.leave()
        return False

    def _say_so(self, held: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._asks_slurm_s:
            self._wanted = acting_host(self._slurm) == self._lease.host
            self._asks_slurm_s = now_s + self._interval_s
        with suppress(OSError):
            self._lease.stand_by(self._wanted)
        self._systemd.tell(f"stands by for {held or 'no controller'}")


def acting_host(slurm: Slurm) -> str:
    """Return the short name of the active slurmctld's host; "" if none answers."""
    try:
        return slurm.acting_host().partition(".")[0]
    except TiresiasError:
        return ""
