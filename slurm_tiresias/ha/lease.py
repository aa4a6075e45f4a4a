"""The lease, which decides which of several controllers on a shared state directory may act.

No lock is used, because its holder may be stopped (SIGSTOP, a paused machine) and never release it.
Each term is a separate file, ``lease-N``, which only one controller can create; the highest number
counts. Its holder writes a new heartbeat into it several times per lease period, and holds the
lease until one period after the last heartbeat, by its own clock. A standby watches the heartbeats,
and takes the next term if none has come for a whole period, by its own clock: clocks of different
hosts are never compared.

The holder checks the lease before every write, and the commands that write are killed when it ends
(``slurm/process.py``). So a holder that was stopped and continued finds its lease lost.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.errors import LeaseLostError

LEAST_LEASE_S = 2.0
"""The lease period is one cycle interval, but at least this. Two intervals then suffice for its
expiry, the polls that detect it, the failover, and a first cycle."""

BEATS_A_LEASE = 8
HOLDERS_SHARE = 0.9
"""The holder stops a little early, because clocks tick at slightly different rates."""

ANY_HOST = "*"
"""The host that a released lease names if any host may take it."""

FORGOTTEN_AFTER_S = 3600.0
TERMS_KEPT = 10

_TERM_FILE = re.compile(r"lease-(\d{1,12})", re.ASCII)
_STANDBY_FILE = re.compile(r"standby-[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Standby:
    """A controller on standby. ``wanted``: the active slurmctld runs on its host."""

    host: str
    pid: int
    wanted: bool


@dataclass(frozen=True, slots=True)
class _Said:
    """The content of a lease or standby file, and when it was first seen."""

    text: str
    since_s: float


def now_s() -> float:
    """Read a clock that continues while this process is stopped or the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class FileLease:
    """The lease of a state directory, as one controller sees it. Implements ``protocol.Lease``."""

    def __init__(
        self, state_dir: Path, host: str, interval_s: float, clock: Callable[[], float] = now_s
    ) -> None:
        self._folder = state_dir
        self._now_s = clock
        self.host = host
        self.lease_s = max(LEAST_LEASE_S, interval_s)
        self.beat_s = self.lease_s / BEATS_A_LEASE
        self.term = 0
        """The term that this controller holds; 0 for none."""
        self._until_s = 0.0
        self._next_beat_s = 0.0
        self._beats = 0
        self._seen_term = 0
        self._seen = _Said("", self._now_s())
        self._standbys: dict[str, _Said] = {}
        self._standby_file = state_dir / f"standby-{_plain(host)}-{os.getpid()}"

    # For the holder

    def check(self) -> float:
        """Return when the lease ends; raise ``LeaseLostError`` if it has ended."""
        if not self.term or self._now_s() >= self._until_s or not self._rules():
            raise LeaseLostError(
                f"The lease of this controller (term {self.term} on {self.host}) is over",
                "nothing needs to be done: it continues as a standby",
            )
        return self._until_s

    def renew(self) -> None:
        """Write a heartbeat if one is due; raise ``LeaseLostError`` if it comes too late."""
        began_s = self._now_s()
        if not self.term or began_s < self._next_beat_s:
            return
        self.check()
        with suppress(OSError):  # the lease then ends by itself, unless it can be written in time
            self._write()
            self._until_s = began_s + HOLDERS_SHARE * self.lease_s
        self._next_beat_s = began_s + self.beat_s

    def release(self, to: str = "") -> None:
        """Release the lease at once; ``to`` is the host whose controller may take it, "" any."""
        if self.term and self._rules():
            with suppress(OSError):
                self._write(released_to=to or ANY_HOST)
        self.term = 0
        self._until_s = 0.0

    def standbys(self) -> list[Standby]:
        """Return the standbys with a recent heartbeat; delete files of those long silent.

        Empty if the directory is out of reach, in which case the lease is about to end as well.
        """
        try:
            return self._standbys_shown()
        except OSError:
            return []

    def _standbys_shown(self) -> list[Standby]:
        found: list[Standby] = []
        for path in self._files(_STANDBY_FILE):
            text = _text(path)
            said = self._standbys.get(path.name)
            if said is None or said.text != text:
                said = self._standbys[path.name] = _Said(text, self._now_s())
            silent_s = self._now_s() - said.since_s
            if text and silent_s < self.lease_s:
                with suppress(ValueError, KeyError, TypeError):
                    raw = json.loads(text)
                    found.append(Standby(str(raw["host"]), int(raw["pid"]), bool(raw["wanted"])))
            elif text and silent_s > FORGOTTEN_AFTER_S:
                path.unlink(missing_ok=True)
                del self._standbys[path.name]
        return found

    # For standbys

    def stand_by(self, wanted: bool) -> None:
        """Write a heartbeat; ``wanted`` says whether the active slurmctld runs on this host."""
        self._beats += 1
        said = {"host": self.host, "pid": os.getpid(), "wanted": wanted, "beat": self._beats}
        write_atomically(self._standby_file, json.dumps(said).encode(), 0o644)

    def leave(self) -> None:
        """Stop being a standby: remove the standby file."""
        self._standby_file.unlink(missing_ok=True)

    def holder(self) -> str:
        """Return the holder of the lease, in words; "" if it is free."""
        said = _fields(self._seen.text)
        if not self._seen_term or said.get("released_to"):
            return ""
        return f"{said.get('host', 'another controller')} (pid {said.get('pid', 'unknown')})"

    def take(self) -> bool:
        """Take the lease if it is free; return whether it was taken. Call this every ``beat_s``."""
        try:
            term = self._highest_term()
            text = _text(self._term_file(term)) if term else ""
            if (term, text) != (self._seen_term, self._seen.text):
                self._seen_term, self._seen = term, _Said(text, self._now_s())
            is_released = not term or _fields(text).get("released_to") in (ANY_HOST, self.host)
            is_over = self._now_s() - self._seen.since_s >= self.lease_s
            return (is_released or is_over) and self._begin(term + 1)
        except OSError:  # another host was first, or the directory is out of reach for now
            return False

    def _begin(self, term: int) -> bool:
        began_s = self._now_s()
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        os.close(os.open(self._term_file(term), flags, 0o644))
        self.term = term
        if not self._rules():
            # This process was stopped before it created its file, and later terms have begun.
            self.term = 0
            return False
        self._write()
        self._until_s = began_s + HOLDERS_SHARE * self.lease_s
        self._next_beat_s = began_s + self.beat_s
        self.leave()
        for path in self._files(_TERM_FILE):
            if int(path.name.partition("-")[2]) <= term - TERMS_KEPT:
                path.unlink(missing_ok=True)
        return True

    # The files

    def _term_file(self, term: int) -> Path:
        return self._folder / f"lease-{term}"

    def _rules(self) -> bool:
        """Whether no later term has begun; False also if the directory is out of reach."""
        try:
            return self._highest_term() == self.term
        except OSError:
            return False

    def _highest_term(self) -> int:
        return max(
            (int(path.name.partition("-")[2]) for path in self._files(_TERM_FILE)), default=0
        )

    def _files(self, pattern: re.Pattern[str]) -> Iterator[Path]:
        for name in os.listdir(self._folder):  # noqa: PTH208 - read anew each time
            if pattern.fullmatch(name):
                yield self._folder / name

    def _write(self, released_to: str = "") -> None:
        self._beats += 1
        said = {
            "host": self.host,
            "pid": os.getpid(),
            "beat": self._beats,
            "released_to": released_to,
        }
        path = self._term_file(self.term)
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(said))


def _plain(host: str) -> str:
    return re.sub(r"[^\w.-]", "_", host)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _fields(text: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError:
        return {}
    return raw if isinstance(raw, dict) else {}
