"""One user against all others: every attack of tests/slurm/test_hostile_users.py at once.

    python attacker.py UID STATE_DIR SECONDS WALL_JOB...

Run it as root; it drops these rights first. Slurm's commands are found as the environment says. It
uses the standard library only and prints how often each attack was made.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ODD_COUNTS = ("gpu:x:0t", "gpu:x:0P", "gpu:1,gpu:x:0t", "gpu:a:0000000000", "gpu:+1", "gpu:-2")
FORGING_JOBS = 60
SILENT_CONNECTIONS = 100
PAUSE_S = 0.5


class Attacker:
    """The number of concurrent attacks, one thread each, until the time is over."""

    def __init__(self, state_dir: Path, seconds: float, walls: Sequence[str]) -> None:
        self._state_dir = state_dir
        self._until_s = time.monotonic() + seconds
        self._walls = walls
        self._made: dict[str, int] = {}
        self._held: list[object] = []

    def attack(self) -> dict[str, int]:
        attacks = (self.spell, self.forge, self.be_immune, self.jump, self.hunt, self.lock)
        threads = [
            threading.Thread(target=self._again, args=(one,))
            for one in (*attacks, self.ask, self.repin)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._made

    def _again(self, one: Callable[[int], None]) -> None:
        for number in itertools.count():
            if time.monotonic() >= self._until_s:
                return
            one(number)
            self._made[one.__name__] = number + 1
            time.sleep(PAUSE_S)

    def spell(self, number: int) -> None:
        _sbatch("--hold", f"--gres={ODD_COUNTS[number % len(ODD_COUNTS)]}")

    def forge(self, number: int) -> None:
        if number < FORGING_JOBS:
            lines = "\n".join(f"JobId={each} " for each in range(1, 81))
            _sbatch("--hold", "--gres=gpu:1", "--comment", f"\n{lines}")

    def be_immune(self, number: int) -> None:
        for wall in self._walls:
            _run("scontrol", "update", f"JobId={wall}", "Requeue=0")
            _run("scontrol", "update", f"JobId={wall}", "Priority=0")

    def jump(self, number: int) -> None:
        _sbatch("--gres=gpu:0")
        job = _sbatch("--gres=gpu:1", "--begin=now+1")
        _run("scontrol", "update", f"JobId={job}", "Partition=other", "StartTime=now")

    def hunt(self, number: int) -> None:
        if not _run("squeue", "-h", "--me", "--name=hunt").strip():
            _sbatch("--gres=gpu:4", "-w", "n1", "-J", "hunt")

    def lock(self, number: int) -> None:
        for path in self._state_dir.iterdir():
            try:
                file = path.open("rb")
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                continue
            self._held = [*self._held[-200:], file]

    def ask(self, number: int) -> None:
        for path in self._state_dir.glob("*.sock"):
            if number == 0:
                silent = [_connected(path) for _ in range(SILENT_CONNECTIONS)]
                self._held += [each for each in silent if each]
            greedy = _connected(path)
            if greedy:
                greedy.send(b"report 0 99999999999\n")
                self._held.append(greedy)

    def repin(self, number: int) -> None:
        if number == 0:
            self._array = _sbatch("--array=0-199", "--gres=gpu:4", "--begin=now+1hour")
        _run("scontrol", "update", f"JobId={self._array}", f"Priority={1000 + number}")


def _connected(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(0.2)
    try:
        connection.connect(str(path))
    except OSError:
        return None
    return connection


def _sbatch(*options: str) -> str:
    given = ("--parsable", "--output=/dev/null", "--chdir=/tmp", "--mem=10", "--wrap=true")
    return _run("sbatch", *given, *options).strip()


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def main() -> None:
    uid, state_dir, seconds, *walls = sys.argv[1:]
    os.setgroups([])
    os.setresgid(int(uid), int(uid), int(uid))
    os.setresuid(int(uid), int(uid), int(uid))
    print(Attacker(Path(state_dir), float(seconds), walls).attack())


if __name__ == "__main__":
    main()
