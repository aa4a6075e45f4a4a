"""How every command starts and ends."""

from __future__ import annotations

import re
import signal
import sys
import time
import types
from collections.abc import Iterator

import pytest

from slurm_tiresias import __version__
from slurm_tiresias.errors import (
    AlreadyRunningError,
    SlurmPermissionError,
    SlurmUnreachableError,
    TiresiasError,
)
from slurm_tiresias.settings import Config
from tests.cli.running import Site, error_of, watched_until_interrupted
from tests.cli.states import busy_state

COMMANDS = (
    ("status",),
    ("explain",),
    ("controller",),
    ("pause",),
    ("resume",),
    ("hand-back",),
    ("nudge",),
    ("config",),
    ("ledger",),
    ("ledger", "rebuild"),
    ("ledger", "prune"),
    ("ledger", "adopt"),
    ("config", "check"),
    ("config", "show"),
    ("config", "example"),
)


class FakeRun(types.ModuleType):
    """Stands for the controller's own module and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__("slurm_tiresias.controller.run")
        self.asked: list[tuple[object, ...]] = []
        self.error: BaseException | None = None

    def run(self, config: Config, shadow: bool) -> None:
        self._asked("run", config.controller.interval_s, shadow)

    def hand_back(self, config: Config) -> int:
        self._asked("hand_back", config.controller.state_dir)
        return 12

    def set_paused(self, config: Config, paused: bool) -> None:
        self._asked("set_paused", paused)

    def _asked(self, *what: object) -> None:
        self.asked.append(what)
        if self.error:
            raise self.error


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRun]:
    fake = FakeRun()
    for name in ("run", "offline"):
        monkeypatch.setitem(sys.modules, f"slurm_tiresias.controller.{name}", fake)
    yield fake


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_accepts_both_help_options(site: Site, command: tuple[str, ...]) -> None:
    long, short = site.run(*command, "--help"), site.run(*command, "-h")
    assert long.exit_code == 0 and long.stdout == short.stdout
    assert long.stdout.startswith(f"Usage: tiresias-slurm {' '.join(command)} ")


def test_the_version_is_printed(site: Site) -> None:
    assert site.run("--version").stdout == f"tiresias-slurm, version {__version__}\n"


@pytest.mark.parametrize("command", ["status", "pause", "hand-back", "nudge", "controller"])
def test_a_missing_configuration_is_exit_code_four(site: Site, command: str) -> None:
    result = site.run("--config", "/nowhere/tiresias.toml", command)
    assert result.exit_code == 4
    assert error_of(result).startswith("/nowhere/tiresias.toml cannot be read: No such file")


def test_the_configuration_is_named_before_or_after_the_command(site: Site) -> None:
    site.publish(busy_state())
    wrong = "/nowhere/tiresias.toml"
    assert site.run("--config", str(site.config), "status", TIRESIAS_CONFIG=wrong).exit_code == 0
    assert site.run("status", "--config", str(site.config), TIRESIAS_CONFIG=wrong).exit_code == 0
    assert site.run("--config", wrong, "status", "--config", str(site.config)).exit_code == 0
    assert site.run("status", TIRESIAS_CONFIG=wrong).exit_code == 4


def test_the_controller_runs_as_configured(site: Site, fake_run: FakeRun) -> None:
    assert site.run("controller").exit_code == 0
    assert site.run("controller", "--shadow", "--interval", "2.5").exit_code == 0
    assert fake_run.asked == [("run", 10.0, False), ("run", 2.5, True)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SlurmUnreachableError("slurmctld does not answer", "Start it"), 5),
        (SlurmPermissionError("Slurm refuses", "Run as SlurmUser"), 6),
        (AlreadyRunningError("Another controller runs", "Stop it"), 9),
        (TiresiasError("It broke\x1b[2J\nbadly", "Mend it"), 1),
        (FileNotFoundError(2, "No such file or directory", "/x"), 1),
    ],
)
def test_every_error_is_one_line_with_its_exit_code(
    site: Site, fake_run: FakeRun, error: Exception, code: int
) -> None:
    fake_run.error = error
    result = site.run("controller")
    assert result.exit_code == code
    assert error_of(result).isprintable()


def test_a_full_stop_in_an_error_message_is_not_doubled() -> None:
    error = SlurmUnreachableError("Slurm said: Connection refused.", "Start slurmctld")
    assert str(error) == "Slurm said: Connection refused. Start slurmctld."


@pytest.mark.parametrize(
    ("environment", "began"),
    [({}, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO: "), ({"JOURNAL_STREAM": "8:1"}, "INFO: ")],
)
def test_the_controller_logs_to_stderr_and_leaves_the_time_to_the_journal(
    live_site: Site, environment: dict[str, str], began: str
) -> None:
    script = (
        "import logging, sys, types; run = types.ModuleType('run'); "
        "run.run = lambda config, shadow: logging.getLogger('x').info('said\\n\\x1b[2J'); "
        "sys.modules['slurm_tiresias.controller.run'] = run; "
        "from slurm_tiresias.cli.main import main; main()"
    )
    result = live_site.spawn("controller", command=(sys.executable, "-c", script), **environment)
    assert result.stdout == ""
    assert re.fullmatch(rf"{began}said\?\?\[2J\n", result.stderr), result.stderr


def test_an_interrupt_is_quiet(site: Site, fake_run: FakeRun) -> None:
    fake_run.error = KeyboardInterrupt()
    result = site.run("controller")
    assert result.exit_code == 130
    assert result.output.strip() == ""


def test_watch_runs_until_interrupted_and_restores_the_terminal(live_site: Site) -> None:
    live_site.publish(busy_state(at_s=time.time()))
    code, output = watched_until_interrupted(live_site.environment())
    assert code == 128 + signal.SIGINT
    assert "hopper" in output and "\x1b[?1049l" in output and "Traceback" not in output
