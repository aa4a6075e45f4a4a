"""The demo's folder, and how its cluster and controller are started and stopped."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import ROOT
from scripts.testbed import constants
from scripts.testbed.patience import PATIENCE_S
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.status import published

CLUSTER_SCRIPT = ROOT / "scripts" / "cluster"
PROGRAMS = Path(sys.prefix) / "bin"
PROGRAM = "tiresias-slurm"
MARK = "SLURM_TIRESIAS_DEMO_CONTROLLER"
"""The environment variable that marks the controller, so that `stop` finds it."""
SIGN = "slurm-tiresias-demo"
"""The file that marks a folder as the demo's, which may therefore be removed."""

SCHEDULER = "bf_interval=1,bf_resolution=1,batch_sched_delay=1,sched_interval=2,disable_job_shrink"
"""Slurm's own schedulers run as often as possible, so that their delays do not matter."""
SLURM_CONF_LINES = (
    f"SchedulerParameters={SCHEDULER}",
    "PriorityType=priority/multifactor",
    "PriorityWeightAge=1000",
    "PriorityMaxAge=1-0",
)
CONTROLLER_CONFIG = """\
# One second of the demo stands for one minute, so every time is a sixtieth of its default.
[manage]
partitions = ["gpu"]

[policy]
thresholds_gpu_s = [60.0]

[preemption]
min_run_s = 2.0

[controller]
mode = "enforce"
interval_s = 1.0
state_dir = "{state_dir}"
nudge_file = "{state_dir}/nudge"
"""

CYCLE_FAILED = "cycle failed"
"""Text in the controller's log after a failed cycle."""


class DemoError(Exception):
    """An error to show to the user: exit status 1."""


class UsageError(DemoError):
    """An invalid request: exit status 2."""


@dataclass(frozen=True)
class Place:
    """The folder of one demo."""

    folder: Path

    @property
    def cluster(self) -> Path:
        return self.folder / "cluster"

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def config(self) -> Path:
        return self.folder / "tiresias.toml"

    @property
    def controller_log(self) -> Path:
        return self.folder / "controller.log"

    @property
    def programs(self) -> Path:
        """A folder for PATH. The one of .venv would also change the shell's Python."""
        return self.folder / "bin"

    def exports(self) -> dict[str, str]:
        """The variables that a shell needs to use this cluster and its controller."""
        return {
            "SLURM_CONF": str(self.cluster / "etc" / "slurm.conf"),
            "TIRESIAS_CONFIG": str(self.config),
            "PATH": path_with(self.programs),
        }

    def environment(self) -> dict[str, str]:
        """The environment of commands and jobs, without variables of another Slurm."""
        foreign = ("SLURM", "SBATCH_", "SQUEUE_", "SACCT_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return own | self.exports() | {"PATH": path_with(PROGRAMS)}


def path_with(folder: Path) -> str:
    """Return PATH with this folder moved to the front."""
    others = os.environ.get("PATH", "/usr/bin:/bin").split(":")
    return ":".join([str(folder), *(other for other in others if other != str(folder))])


def place_named(folder: Path | None) -> Place:
    return Place((folder or Path(f"/tmp/slurm-tiresias-demo-{os.getuid()}")).resolve())


def this_command(place: Place, *words: str) -> str:
    """Return the command line of the demo for this place."""
    named = [] if place == place_named(None) else ["--dir", str(place.folder)]
    return shlex.join(["./scripts/demo", *words, *named])


@contextlib.contextmanager
def alone_in(place: Place) -> Iterator[None]:
    """Lock the place with an abstract Unix socket, which the kernel frees when its holder dies."""
    digest = hashlib.sha256(bytes(place.folder)).hexdigest()[:32]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:
        try:
            holder.bind(f"\0slurm-tiresias/demo/{digest}")
        except OSError as error:
            raise UsageError(
                f"another demo works in {place.folder}. End it with Ctrl-C where it runs, "
                "or name another --dir."
            ) from error
        yield


def prepare(place: Place, controller_config: str = CONTROLLER_CONFIG) -> None:
    """An empty folder of our own; what an earlier demo left running there is stopped."""
    folder = place.folder
    if is_demos(place):
        stop(place)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} holds something else. Name an empty or new folder with --dir.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SIGN).touch()
    place.jobs.mkdir()
    place.state.mkdir(mode=0o755)
    place.programs.mkdir()
    (place.programs / PROGRAM).symlink_to(PROGRAMS / PROGRAM)
    place.config.write_text(controller_config.format(state_dir=place.state))


@contextlib.contextmanager
def temporary_place(name: str, controller_config: str = CONTROLLER_CONFIG) -> Iterator[Place]:
    """Prepare a place of its own in /tmp, and stop at the end all that runs there."""
    place = Place(Path(f"/tmp/slurm-tiresias-{name}-{time.time_ns() % 10**9}"))
    try:
        prepare(place, controller_config)
        yield place
    finally:
        stop(place)


def is_demos(place: Place) -> bool:
    return (place.folder / SIGN).exists()


def start_cluster(place: Place, *options: str) -> None:
    """Start the demo's cluster, with further options of scripts/cluster."""
    lines = [f"--slurm-conf-line={line}" for line in SLURM_CONF_LINES]
    bring_up(place, "--nodes=4", "--gpus=4", *lines, *options)


def bring_up(place: Place, *options: str) -> None:
    """Start the cluster of this place, with options of scripts/cluster."""
    command = [str(CLUSTER_SCRIPT), "up", "--dir", str(place.cluster), *options]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        raise DemoError("the cluster did not start, see above")


def install(*packages: str) -> None:
    """Install Debian's Slurm and these packages if they are missing, or say which are."""
    if subprocess.run([str(CLUSTER_SCRIPT), "install", *packages], check=False).returncode != 0:
        raise DemoError("packages are missing, see above")


def marked(place: Place) -> dict[str, str]:
    """Return the environment of a process that ``stop`` is to end."""
    return place.environment() | {MARK: str(place.folder)}


def start_controller(
    place: Place, *options: str, replaced: Mapping[str, float] | None = None
) -> int:
    """Start the controller and wait until its first cycle is published; return its pid.

    ``replaced``: constants of the program with other values. It gets its own session, so that
    Ctrl-C reaches only the demo, which then stops it in order.
    """
    command = constants.COMMAND if replaced else (str(PROGRAMS / PROGRAM),)
    environment = constants.in_environment(replaced) if replaced else {}
    with place.controller_log.open("a") as log:
        process = subprocess.Popen(
            [*command, "controller", "--config", str(place.config), *options],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=marked(place) | environment,
            start_new_session=True,
        )
    wait_until(lambda: process.poll() is not None or is_published(place), "the controller")
    if process.poll() is not None:
        words = place.controller_log.read_text().strip().splitlines()
        raise DemoError("\n  ".join(["the controller ended at once:", *words[-5:]]))
    return process.pid


def is_published(place: Place) -> bool:
    try:
        return published.read(place.state).cycle > 0
    except NotRunningError:
        return False


def stop(place: Place) -> None:
    """Stop the controller and the cluster and remove the folder; may be repeated."""
    end(controllers(place))
    command = [str(CLUSTER_SCRIPT), "down", "--dir", str(place.cluster)]
    down = subprocess.run(command, capture_output=True, text=True, check=False)
    if down.returncode != 0:
        raise DemoError(f"the cluster did not stop:\n{down.stderr.strip()}")
    shutil.rmtree(place.folder, ignore_errors=True)


def controllers(place: Place) -> list[int]:
    """Return the pids of this place's own processes, found by the mark in their environment."""
    mark = f"{MARK}={place.folder}".encode()
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if carries(entry, mark)]


def carries(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        # The process has ended, or belongs to another user.
        return False


def end(pids: list[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        with contextlib.suppress(DemoError):
            wait_until(lambda: not any(map(is_alive, pids)), "the controller's end", 10.0)
            return


def check_controller(place: Place, pid: int) -> None:
    """Fail if the controller has died: Slurm would go on alone, which is another experiment."""
    if not is_alive(pid):
        words = place.controller_log.read_text().strip().splitlines()
        raise DemoError("\n  ".join(["the controller ended before the jobs did:", *words[-5:]]))


def failed_cycles(log: str) -> tuple[str, ...]:
    """Return the failed cycles of a controller's log: after each, Slurm schedules alone for a
    while."""
    failures = [line.strip() for line in log.splitlines() if CYCLE_FAILED in line]
    return (f"{len(failures)} of the controller's cycles: {failures[0]}",) if failures else ()


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return Path(f"/proc/{pid}").exists()


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise DemoError(f"waited {patience_s:g} s without success for {what}")
        time.sleep(0.1)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
