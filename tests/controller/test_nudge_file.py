"""The file by which Slurm's hooks make the controller run a cycle at once."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import AF_UNIX, SOCK_DGRAM, socket
from types import SimpleNamespace
from typing import cast

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller import run
from slurm_tiresias.controller.cycle import Cycles
from slurm_tiresias.controller.pace import Pace
from slurm_tiresias.controller.publish import nothing_yet
from slurm_tiresias.controller.run import Controller
from slurm_tiresias.daemon.signals import Wakeups, signalled_when_made, take_nudge
from slurm_tiresias.daemon.systemd import Systemd
from slurm_tiresias.errors import ConfigError
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Cluster
from slurm_tiresias.slurm.removed_nodes import RemovedNodes

ETC = Path(__file__).parents[2] / "etc"


def test_a_nudge_is_taken_once(tmp_path: Path) -> None:
    nudge = tmp_path / "nudge"
    assert not take_nudge(str(nudge))
    nudge.touch()
    assert take_nudge(str(nudge))
    assert not take_nudge(str(nudge))


def test_without_the_folder_and_without_the_setting_there_is_no_nudge(tmp_path: Path) -> None:
    assert not take_nudge(str(tmp_path / "none" / "nudge"))
    assert not take_nudge("")


def test_the_hooks_and_the_service_know_the_default() -> None:
    default = Path(Config().controller.nudge_file)
    assert f'local nudge_file = "{default}"' in (ETC / "job_submit.lua").read_text()
    assert f"TIRESIAS_NUDGE_FILE:-{default}}}" in (ETC / "nudge").read_text()
    unit = (ETC / "tiresias-slurm.service").read_text()
    (folder,) = re.findall("^RuntimeDirectory=(.*)$", unit, re.MULTILINE)
    assert default.parent == Path("/run") / folder


@pytest.mark.parametrize("folder", ["", "none"])
def test_the_hook_of_the_epilog_never_fails(tmp_path: Path, folder: str) -> None:
    nudge = tmp_path / folder / "nudge"
    environment = {"TIRESIAS_NUDGE_FILE": str(nudge), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run([str(ETC / "nudge")], env=environment, capture_output=True, check=True)
    assert not ended.stdout + ended.stderr
    assert nudge.exists() is (not folder)


def test_a_path_that_is_not_absolute_is_refused() -> None:
    with pytest.raises(ConfigError, match="nudge_file = 'nudge' is not an absolute path"):
        parse({"controller": {"nudge_file": "nudge"}})


# While the controller waits


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Controller]:
    """A controller whose next cycle is an hour away, and that has no other reason to run one."""
    controller = Controller.__new__(Controller)
    controller._config = parse({"controller": {"nudge_file": str(tmp_path / "nudge")}})
    controller._lease = None
    controller._removed = RemovedNodes("")
    never = SimpleNamespace(prune_some=lambda now_s: None)
    controller._cycles = cast(Cycles, SimpleNamespace(retention=never))
    controller._systemd = Systemd()
    cluster = Cluster("grid", (22, 5, 8), "priority/multifactor", True, 30, 120, 0.0)
    controller._state = nothing_yet(cluster, Config(), "enforce")
    controller._pace = Pace(3600.0, time.monotonic() - 1.0)
    controller._pace.fail(time.monotonic(), 3600.0)
    yield controller


def waits(controller: Controller, wakeups: Wakeups) -> None:
    """Wait as in ``Controller.loop`` until a cycle is due."""
    while time.monotonic() < controller._pace.next_s:
        controller._wait(wakeups)


def test_a_nudge_is_noticed_by_signal_without_polling(
    waiting: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def counted(nudge_file: str) -> bool:
        looks.append(time.monotonic())
        return take_nudge(nudge_file)

    monkeypatch.setattr(run, "take_nudge", counted)
    monkeypatch.setattr(run, "LOOK_FOR_NUDGE_S", 3600.0)
    with signalled_when_made(waiting._config.controller.nudge_file), Wakeups() as wakeups:
        leaver = threading.Timer(0.5, (tmp_path / "nudge").touch)
        leaver.start()
        waits(waiting, wakeups)
        leaver.join()
    assert not (tmp_path / "nudge").exists()
    assert len(looks) < 10


def test_a_nudge_is_noticed_by_polling_without_signals(
    waiting: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LOOK_FOR_NUDGE_S", 0.05)
    with signalled_when_made(str(tmp_path / "none" / "nudge")), Wakeups() as wakeups:
        threading.Timer(0.1, (tmp_path / "nudge").touch).start()
        waits(waiting, wakeups)
    assert not (tmp_path / "nudge").exists()


def test_systemds_watchdog_is_notified_during_a_long_interval(
    waiting: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WatchdogSec is 10 minutes and an interval may be an hour."""
    with socket(AF_UNIX, SOCK_DGRAM) as systemd, Wakeups() as wakeups:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        waiting._systemd = Systemd()
        waiting._pace.fail(time.monotonic(), 0.9)
        waiting._wait(wakeups)
        systemd.setblocking(False)
        pings = 0
        with suppress(BlockingIOError):
            while True:
                assert systemd.recv(400) == b"WATCHDOG=1"
                pings += 1
    assert pings >= 3, "more than one in each 0.4 s"
