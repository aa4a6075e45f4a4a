"""Every command with every kind of bad input: one line with the problem and the remedy, a
documented exit code, no traceback, and no lost data.

The commands are those that click knows. A new command is tested too, and fails here until its
arguments are listed.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import short_folder
from slurm_tiresias.cli.main import OUTPUT_CLOSED, cli
from slurm_tiresias.controller.commands import Commands
from slurm_tiresias.errors import INTERRUPTED
from slurm_tiresias.profiler.profile import MODEL, Profile, key_of
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.store import FILE_NAME as PROFILES
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.status import ask, job_history, published
from slurm_tiresias.status.ask import SOCKET_NAME
from slurm_tiresias.status.privacy import Views
from slurm_tiresias.status.published import PublishedState
from slurm_tiresias.status.server import serving
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import RunRecord
from tests.cli.running import ROOT, Site, error_of
from tests.cli.states import busy_state, running, state, waiting
from tests.cli.warm import Ended, Warm, warm
from tests.controller.test_life import job as remembered
from tests.other_user import as_root

JOB = "40655"
GIVEN = {
    "JOBID": (JOB,),
    "NAME": ("bert",),
    "NODE": ("n1",),
    "FILE": ("profiles.json",),
    "FILE...": ("bert.safetensors",),
    "--collect": ("--collect", "/nowhere"),
    "--until": ("--until", "now+1hour"),
    "[SBATCH OPTIONS] SCRIPT [ARGUMENTS]...": ("job.sbatch",),
}
"""Values of required arguments and options, by metavar or name."""

SIMULATED = ("--trace", "trace.csv", "--cluster", "1x4")
MORE: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("simulate",): SIMULATED,
    ("tune",): (*SIMULATED, "--workers", "1"),
}
"""Options that keep a command short which would otherwise find its own work."""

DAEMONS = {("controller",), ("profile", "sample")}
"""Commands that log to standard error, and exit by themselves only if they cannot start."""

FOUND = {12, 13}
"""Exit codes of ``doctor`` for its findings."""

ERROR = re.compile(r"tiresias-slurm: error: [^\n]+\. [^\n]+\.")
CRASHES = ("Traceback", "Exception ignored", "Error:", "BrokenPipe", "core dumped")
COLOUR = re.compile(r"\x1b\[[\d;]*[1-9][\d;]*m")
UTF8 = {"LC_ALL": "C.UTF-8"}


def commands() -> Iterator[tuple[str, ...]]:
    """Return every command that is not a group."""

    def below(
        command: click.Command, context: click.Context, path: tuple[str, ...]
    ) -> Iterator[tuple[str, ...]]:
        if not isinstance(command, click.Group):
            yield path
            return
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from below(found, click.Context(found, parent=context), (*path, name))

    yield from below(cli, click.Context(cli), ())


def call_of(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with its required arguments."""
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found
        command = found
    given: list[str] = []
    for parameter in command.params:
        if parameter.required:
            option = isinstance(parameter, click.Option)
            name = parameter.opts[0] if option else parameter.metavar or str(parameter.name).upper()
            assert name in GIVEN, f"say in GIVEN what is tried for {name} of {' '.join(path)}"
            given += GIVEN[name]
    return (*path, *given, *MORE.get(path, ()))


CALLS = {path: call_of(path) for path in commands()}


def documented_codes() -> set[int]:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    table = text.partition("## Exit codes")[2]
    return {
        int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.M) for code in row.split(",")
    }


DOCUMENTED = documented_codes()


def lasting_state(**changes: Any) -> PublishedState:
    """A published state that does not become stale while all commands run, even on a slow
    machine."""
    return busy_state(at_s=time.time(), interval_s=600.0, **changes)


class Place(Site):
    """A site with everything that commands look for, except Slurm."""

    def __init__(self, folder: Path) -> None:
        self.state_dir = folder / "state"
        super().__init__(folder)
        self.state_dir.mkdir(mode=0o755)
        (folder / "trace.csv").write_text(
            "job_id,submit_time_s,num_gpus,duration_s\n"
            + "".join(f"{number},{9 * number},1,60\n" for number in range(20))
        )
        (folder / "two.csv").write_text(
            "job_id,submit_time_s,num_gpus,duration_s\na,0,1,60\nb,9,1,60\n"
        )
        (folder / "empty").touch()
        (folder / "binary").write_bytes(b"\xff\xfe\x00\x01")
        (folder / "tables").mkdir()
        (folder / "page.md").write_text("# A page\n\nThat is no model.\n")
        (folder / "profiles.json").write_text(json.dumps({"schema": 1, "profiles": []}))
        header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        (folder / "bert.safetensors").write_bytes(
            struct.pack("<Q", len(header)) + header + bytes(8)
        )
        self.publish(lasting_state())
        self.keep(busy_state())
        with closing(ProfileStore(self.state_dir / PROFILES)) as store:
            store.save([Profile(key_of(MODEL, "bert"), Skew(10, 100, 3), "file", 1.0)])

    def configure(self, text: str) -> None:
        settings = f'[controller]\nstate_dir = "{self.state_dir}"\n[manage]\npartitions = ["gpu"]\n'
        self.config.write_text(settings + text, encoding="utf-8")

    def publish(self, state: PublishedState, *, private: bool = False) -> None:
        published.write(state, self.state_dir, private=private)

    def keep(self, state: PublishedState) -> None:
        """Store these jobs in the ledger."""
        with closing(Ledger(self.ledger)) as ledger, ledger.transaction():
            ledger.jobs.put([remembered(one.job_id, one.user) for one in state.jobs])
            ledger.runs.put([RunRecord(JOB, 20.0, 50.0, 30.0, 4, True)])

    @property
    def ledger(self) -> Path:
        return self.state_dir / "ledger.sqlite"

    def environment(self, **changes: str) -> Mapping[str, str]:
        """Hide Slurm's commands: no test here may reach a cluster of this machine."""
        usual = {
            "PATH": "/nowhere",
            "HOME": str(self.folder),
            "TERM": "xterm-256color",
            "TIRESIAS_CONFIG": str(self.config),
            "TZ": "UTC",
        }
        return {**usual, **UTF8, **changes}


@pytest.fixture
def place() -> Iterator[Place]:
    with short_folder() as folder:
        yield Place(folder)


@contextmanager
def ready(checkout: Path = ROOT, /, **environment: str) -> Iterator[Warm]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    with warm({**kept, **environment}, checkout) as program:
        yield program


@pytest.fixture(scope="module")
def program() -> Iterator[Warm]:
    """The program in the usual locale of a terminal."""
    with ready(**UTF8) as found:
        yield found


@pytest.fixture(scope="module")
def program_for_others(readable: Path) -> Iterator[Warm]:
    """The program in a folder that other users can read."""
    with ready(readable, PYTHONPATH=str(readable), **UTF8) as found:
        yield found


def flaws(path: tuple[str, ...], ended: Ended) -> Iterator[str]:
    """Return the problems with how a command ended."""
    if ended.code not in DOCUMENTED:
        yield f"exit code {ended.code} is not in the docs"
    said = ended.stdout + ended.stderr
    yield from (f"{crash} in {said!r}" for crash in CRASHES if crash in said)
    lines = ended.stderr.splitlines()
    if path in DAEMONS:
        lines = [line for line in lines if ERROR.fullmatch(line)]
    fails = ended.code not in {0, INTERRUPTED, OUTPUT_CLOSED, *FOUND}
    if len(lines) != fails or not all(map(ERROR.fullmatch, lines)):
        yield f"exit code {ended.code}, and standard error has {ended.stderr!r}"


def all_end_well(
    call: Callable[[tuple[str, ...]], Ended], codes: Mapping[str, int] | None = None
) -> dict[str, Ended]:
    """Call every command; ``codes`` are the exit codes that some of them must have, by name.

    ``tune``, which takes as long as all others, is called only if it is one of these.
    """
    ends = {
        path: call(arguments)
        for path, arguments in CALLS.items()
        if path != ("tune",) or "tune" in (codes or {})
    }
    wrong = {" ".join(p): list(flaws(p, ended)) for p, ended in ends.items()}
    found = {" ".join(path): ended for path, ended in ends.items()}
    for name, code in (codes or {}).items():
        if found[name].code != code:
            wrong[name].append(f"exit code {found[name].code} {found[name].stderr}, not {code}")
    assert not any(wrong.values()), {name: each for name, each in wrong.items() if each}
    return found


Call = Callable[[tuple[str, ...]], Ended]


def at(place: Place, program: Warm, environment: Mapping[str, str] = UTF8, **how: Any) -> Call:
    """Return a function that calls the program there, with these options of ``Warm.call``."""
    here = place.environment(**environment)
    return lambda arguments: program.call(arguments, here, place.folder, **how)


NO_SLURM = {"controller": 5, "init": 5, "hand-back": 5, "ledger rebuild": 5}
WELL = {"status": 0, "explain": 0, "history": 0, "config show": 0, "profile list": 0}


def test_every_command_exits_cleanly_if_only_slurm_is_missing(place: Place, program: Warm) -> None:
    all_end_well(
        at(place, program), {**NO_SLURM, **WELL, "simulate": 0, "tune": 0, "nudge": 3, "pause": 0}
    )


def test_every_command_exits_cleanly_if_no_controller_ever_ran(place: Place, program: Warm) -> None:
    place.state_dir = place.folder / "nothing"
    place.configure("")
    call = at(place, program)
    # Before pause, which makes a ledger for the controller to come.
    for path in (("history",), ("report",), ("shadow", "report")):
        assert call(CALLS[path]).code == 3
    all_end_well(call, {"status": 3, "explain": 3, "nudge": 3, "pause": 0})


def test_every_command_exits_cleanly_with_a_stale_state(place: Place, program: Warm) -> None:
    place.publish(busy_state(at_s=time.time() - 4000))
    ends = all_end_well(at(place, program), {"status": 3, "explain": 3})
    assert JOB in ends["status"].stdout and JOB in ends["explain"].stdout


DAMAGED = (
    *(b"", b"{", b"[]", b"3", b"\x00\xff" * 100, b"[" * 200_000, b'{"schema": 2}'),
    b'{"schema": 1, "jobs": 3}',
    b'{"schema": 1, "jobs": [1], "gpus": {}, "tiers": [], "events": []}',
)


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
@pytest.mark.parametrize("command", ["status", "explain"])
def test_a_damaged_snapshot_is_one_line(place: Place, command: str, content: bytes) -> None:
    (place.state_dir / published.FILE_NAME).write_bytes(content)
    result = place.run(command, *([JOB] if command == "explain" else []))
    assert result.exit_code == 3
    assert "is not a state of this version, or is damaged" in error_of(result)


def test_every_command_exits_cleanly_with_damaged_files_and_leaves_them_unchanged(
    place: Place, program: Warm
) -> None:
    names = ("state.json", "ledger.sqlite", PROFILES, SOCKET_NAME)
    for name in names:
        (place.state_dir / name).write_bytes(name.encode() * 1000)
    damaged = ("pause", "resume", "hand-back", "history", "shadow report", "controller")
    all_end_well(at(place, program), {"status": 3, "nudge": 3, **dict.fromkeys(damaged, 11)})
    for name in names:
        assert (place.state_dir / name).read_bytes() == name.encode() * 1000, name


def test_every_command_exits_cleanly_if_folders_replace_files(place: Place, program: Warm) -> None:
    for name in ("state.json", "ledger.sqlite", PROFILES, SOCKET_NAME):
        (place.state_dir / name).unlink(missing_ok=True)
        (place.state_dir / name).mkdir()
    all_end_well(at(place, program), {"status": 3, "history": 3, "pause": 8, "shadow report": 8})


@contextmanager
def listening(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Listen on a socket and answer every connection with this text, then close it."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def hangs_up(_connection: socket.socket) -> None:
    pass


def babbles(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b'{"schema": 1, \xff\n')


def says_nothing(connection: socket.socket) -> None:
    """Wait until the client has disconnected."""
    connection.settimeout(20)
    while connection.recv(1000):
        pass


@pytest.mark.parametrize("answer", [hangs_up, babbles, says_nothing])
def test_every_command_exits_cleanly_with_a_forged_controller_socket(
    place: Place, answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read the state like a user who must ask for it: root may read every file."""
    monkeypatch.setattr(ask, "ANSWER_S", 0.2)
    monkeypatch.setattr(ask, "COMMAND_S", 0.2)
    place.ledger.unlink()
    monkeypatch.setattr(published, "FILE_NAME", ".")
    monkeypatch.setattr(Path, "is_dir", lambda _path: True)
    with listening(place.state_dir / SOCKET_NAME, answer):
        for arguments in (("status",), ("explain", JOB), ("history", JOB), ("nudge",)):
            result = place.run(*arguments)
            assert result.exit_code == 3, arguments
            error_of(result)


@as_root
def test_every_command_exits_cleanly_for_a_user_who_sees_no_other_jobs(
    place: Place, program_for_others: Warm
) -> None:
    seen = state(
        waiting("1", user="nobody"), running(JOB, user="alice"), at_s=time.time(), interval_s=600.0
    )
    place.publish(seen, private=True)
    for file in (place.ledger, place.state_dir / PROFILES):
        file.chmod(0o600)
    services = {
        published.VIEW: Views(seen).service,
        job_history.REQUEST: job_history.history_service(place.ledger, private=True),
        **Commands(lambda: None).services(),
    }
    with serving(place.state_dir, services):
        call = at(place, program_for_others, as_nobody=True)
        ends = all_end_well(call, {"explain": 1, "history": 1, "status": 0, "pause": 6})
    assert "who may see no others" in ends["explain"].stderr
    assert "that you may see" in ends["history"].stderr
    assert not any("alice" in ended.stdout + ended.stderr for ended in ends.values())


@as_root
def test_a_configuration_that_this_user_may_not_read_is_exit_code_four(
    place: Place, program_for_others: Warm
) -> None:
    place.config.chmod(0o600)
    call = at(place, program_for_others, as_nobody=True)
    ends = all_end_well(call, {"status": 4, "explain": 4, "pause": 4})
    assert "Permission denied" in ends["status"].stderr


@pytest.mark.parametrize(
    "file",
    [
        "[controller\nx",
        f"[controller]\ninterval_s = {'9' * 400}",
        f"[controller]\ninterval_s = {'9' * 5000}",
        f"a = {'[' * 100_000}",
        None,
        "folder",
    ],
    ids=["torn", "too large", "too many digits", "too deep", "missing", "folder"],
)
def test_commands_bear_a_bad_configuration(place: Place, program: Warm, file: str | None) -> None:
    place.config.unlink()
    if file == "folder":
        place.config.mkdir()
    elif file is not None:
        place.config.write_text(file)
    codes = {"status": 4, "explain": 4, "history": 4, "hand-back": 4}
    if file is None:
        all_end_well(at(place, program), codes)
    for name, code in codes.items():
        ended = at(place, program)(CALLS[name,])
        assert ended.code == code and not list(flaws((name,), ended))


def test_every_command_ends_cleanly_when_its_output_is_closed(place: Place, program: Warm) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        talk = ("status", "explain", "history", "doctor", "config example", "profile list")
        all_end_well(at(place, program, stdout=writes), dict.fromkeys(talk, OUTPUT_CLOSED))
    finally:
        os.close(writes)


def test_every_command_exits_cleanly_if_its_disk_is_full(place: Place, program: Warm) -> None:
    with Path("/dev/full").open("w") as full:
        talk = ("status", "explain", "history", "doctor", "config example", "pause")
        ends = all_end_well(at(place, program, stdout=full.fileno()), dict.fromkeys(talk, 1))
    for name in talk:
        assert "The output could not all be written: No space left on device" in ends[name].stderr


def test_every_command_exits_cleanly_if_stdout_is_closed(place: Place, program: Warm) -> None:
    all_end_well(at(place, program, closed=True), {**NO_SLURM, **WELL})


def test_every_command_exits_cleanly_without_home_and_term(place: Place, program: Warm) -> None:
    left = {k: v for k, v in place.environment().items() if k not in ("HOME", "TERM")}
    call = partial(program.call, environment=left, folder=place.folder)
    all_end_well(call, {**NO_SLURM, **WELL})


ASCII_ONLY = (
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {**UTF8, "PYTHONIOENCODING": "ascii"},
)


@pytest.mark.parametrize("locale", ASCII_ONLY, ids=["C without UTF-8", "ascii"])
def test_commands_print_ascii_in_an_ascii_locale(place: Place, locale: Mapping[str, str]) -> None:
    odd = running("40712", name="größe-测试", user="müller")
    place.publish(lasting_state(jobs=(*busy_state().jobs, odd)))
    with ready(**locale) as program:
        ends = all_end_well(at(place, program, locale), {**NO_SLURM, **WELL})
    for name, ended in ends.items():
        assert (ended.stdout + ended.stderr).isascii(), name


@pytest.mark.parametrize("width", [1, 40])
def test_every_command_bears_a_narrow_terminal(place: Place, program: Warm, width: int) -> None:
    def call(arguments: tuple[str, ...]) -> Ended:
        ended = program.on_terminal(width, arguments, place.environment(), place.folder)
        lines = ended.stdout.splitlines(keepends=True)
        errors = [line for line in lines if ERROR.match(line)]
        rest = [line for line in lines if line not in errors]
        return Ended(ended.code, "".join(rest), "".join(errors))

    all_end_well(call, WELL)


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_no_command_uses_colour_with_no_color(
    place: Place, program: Warm, environment: Mapping[str, str]
) -> None:
    def call(arguments: tuple[str, ...]) -> Ended:
        return program.on_terminal(80, arguments, place.environment(**environment), place.folder)

    for arguments in CALLS.values():
        assert not COLOUR.search(call(arguments).stdout), arguments


WRONG = {
    "ledger prune": (8, "There is no ledger in {nowhere}. Name the controller's directory in"),
    "ledger prune --dry-run": (8, "There is no ledger in {nowhere}. Name the controller's"),
    "ledger adopt": (8, "There is no ledger in {nowhere}. Name the controller's directory in"),
    "simulate --trace trace.csv --format philly": (
        2,
        "trace.csv, line 1: the header names neither",
    ),
    "simulate --trace binary": (2, "binary, line 1: the file is not text in UTF-8. Unpack it"),
    "simulate --trace tables": (
        2,
        "tables is a folder without pai_job_table.csv and pai_task_table.csv. Name a file,",
    ),
    "tune --trace two.csv": (2, "2 jobs are too few to compare settings. Name at least 20 jobs"),
    "simulate --overhead inf": (2, "--overhead 'inf' is not a cost of a preemption. Write"),
    "simulate --cluster 2x4x8": (2, "'2x4x8' is not a cluster: it is neither NODESxGPUS nor a"),
    "simulate --cluster binary": (2, "binary is not a text file (byte 0). Name a file in TOML"),
    "simulate --thresholds -5": (2, "the command line: policy.thresholds_gpu_s = -5 is out of"),
    "simulate --thresholds 5,1": (2, "the command line: policy.thresholds_gpu_s = [5, 1] is"),
    "profile model empty": (2, "empty cannot be read as a model: it is empty. Name a"),
    "profile model page.md": (2, "page.md cannot be read as a model: it is none of the known"),
    "": (2, "Missing command. See: tiresias-slurm --help."),
    "config": (2, "Missing command. See: tiresias-slurm config --help."),
    "stat": (2, "No such command 'stat'"),
    "statsu": (2, "No such command 'statsu'. Perhaps 'status' was meant. See: "),
    "explain": (2, "Missing argument 'JOBID'. See: tiresias-slurm explain --help."),
    "controller --interval 0": (2, "Invalid value for '--interval': 0.0 is not in"),
    "controller --interval soon": (2, "Invalid value for '--interval': 'soon' is not"),
    "pause now": (2, "Got unexpected extra argument (now)"),
    "--config": (2, "Option '--config' requires an argument"),
    "config check a b": (2, "Got unexpected extra argument (b)"),
    "status -j \x1b[2J": (2, "'?[2J' is not a job id. "),
    "status -t ZZ": (2, "There is no job state 'ZZ'. There are: PENDING, "),
    "status --tier high": (2, "'high' is not a tier. "),
    "status --tier -1": (2, "'-1' is not a tier. "),
    "status --watch 0": (2, "Invalid value for '-w' / '--watch'"),
    "status -w": (2, "--watch needs a terminal"),
    "status --jsn": (2, "No such option"),
    "status extra": (2, "Got unexpected extra argument (extra). See: tiresias-slurm status"),
    "status -p": (2, "Option '-p' requires an argument. See: tiresias-slurm status --help"),
    "status --tier x --config /nowhere": (2, "'x' is not a tier. Write a number; 0 is highest"),
    "status -S x --config /nowhere": (2, "Jobs cannot be sorted by column 'x'. Sort by one of"),
    "status -o x --config /nowhere": (2, "There is no column 'x'. There are: JOBID"),
    "explain x --config /nowhere": (2, "'x' is not a job id. Write a number, or 12_3 for an"),
    "history x --config /nowhere": (2, "'x' is not a job id. Write a number, or 12_3 for an"),
}
"""Command lines with one thing wrong; the exit code, and the beginning of what is said."""


@pytest.mark.parametrize("arguments", WRONG)
def test_errors_say_what_is_wrong_and_a_remedy(place: Place, program: Warm, arguments: str) -> None:
    nowhere = place.folder / "nowhere"
    if arguments.startswith("ledger"):
        place.config.write_text(f'[controller]\nstate_dir = "{nowhere}"\n')
    code, said = WRONG[arguments]
    ended = at(place, program)(tuple(arguments.split()))
    assert ended.code == code and not list(flaws((), ended))
    assert ended.stderr.startswith(f"tiresias-slurm: error: {said.format(nowhere=nowhere)}")
    assert not nowhere.exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("[policy]\nthresholds_gpu_s = [5, 1]", "policy.thresholds_gpu_s = [5, 1] is not"),
        ("[preemption]\ncheckpoint = 'NO@1'", "preemption.checkpoint = 'NO@1' is not SIGNAL@"),
        ("[preemption]\ncheckpoint = 'USR1'", "preemption.checkpoint = 'USR1' is not SIGNAL@"),
        ("[preemption]\ncheckpoint = 'USR1@3601'", "preemption.checkpoint = 'USR1@3601' is not"),
        ("[http]\nlisten = 'x'", "http.listen = 'x' is not"),
        ("[idle_gpus]\nafter_s = 600", "idle_gpus.after_s is set without profiler.collect_dir"),
        ("[manage]\npartitions = []", "manage.partitions is empty"),
        ("[manage]\nexclude = ['qos=x', 'group=y']", "manage.exclude has 'group=y'. "),
        ("[manage]\nexclude = ['user=']", "manage.exclude has 'user='. "),
        ("[controller]\ninterval_s = true", "controller.interval_s = true is not a number"),
    ],
)
def test_an_error_of_the_configuration_names_the_file_and_the_line(
    place: Place, program: Warm, settings: str, said: str
) -> None:
    place.config.write_text(settings + "\n")
    ended = at(place, program)(("status",))
    assert ended.code == 4 and not list(flaws(("status",), ended))
    assert ended.stderr.startswith(f"tiresias-slurm: error: {place.config}:2: {said}")


JOBS_ASKED = {
    "0": "'0' is not a job id",
    "abc": "'abc' is not a job id",
    "9" * 20: f"'{'9' * 20}' is not a job id",
    "9" * 5000: f"'{'9' * 39}…' is not a job id",
    "4294967296": "'4294967296' is not a job id",
    "x\ny": "'x?y' is not a job id",
    "": "'' is not a job id",
    " 1": "' 1' is not a job id",
    "٣": "'٣' is not a job id",
    "1_": "'1_' is not a job id",
    "1_[1-3]": "'1_[1-3]' is not a job id",
    "12.0": "'12.0' is a step of a job. Name the job: 12.",
    "12_3.batch": "'12_3.batch' is a step of a job. Name the job: 12_3.",
    "-1": "No such option '-1'",
}
OF_ONE_JOB = [path for path, call in CALLS.items() if JOB in call]


@pytest.mark.parametrize("asked", JOBS_ASKED, ids=lambda asked: repr(asked[:24]))
@pytest.mark.parametrize("path", OF_ONE_JOB, ids=" ".join)
def test_invalid_job_ids_are_exit_code_two(place: Place, path: tuple[str, ...], asked: str) -> None:
    result = place.run(*(asked if word == JOB else word for word in CALLS[path]))
    assert result.exit_code == 2
    assert error_of(result).startswith(JOBS_ASKED[asked])


@pytest.mark.parametrize("asked", [asked for asked in JOBS_ASKED if asked not in ("", " 1", "-1")])
def test_every_filter_refuses_an_invalid_job_id(place: Place, asked: str) -> None:
    result = place.run("status", "-j", asked)
    assert result.exit_code == 2
    assert error_of(result).startswith(JOBS_ASKED[asked])


@pytest.mark.parametrize("asked", ["1_2", "1+2", "4294967295", "00012"])
@pytest.mark.parametrize("path", OF_ONE_JOB, ids=" ".join)
def test_an_unknown_job_is_exit_code_one(place: Place, path: tuple[str, ...], asked: str) -> None:
    result = place.run(*(asked if word == JOB else word for word in CALLS[path]))
    if path == ("boost",):  # Only a controller knows.
        assert result.exit_code == 3
        return
    assert result.exit_code == 1
    assert f"no job {asked}" in error_of(result)


@pytest.mark.parametrize("option", ["-j", "-u", "-p", "-t", "--tier"])
def test_a_filter_that_names_nothing_does_not_show_everything(place: Place, option: str) -> None:
    """An empty value, as from an unset shell variable."""
    result = place.run("status", option, "")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "names no value. Name a value, or leave the option out." in error_of(result)


def test_an_interrupt_while_the_program_loads_is_quiet(place: Place) -> None:
    """Send SIGINT from the first module that is loaded after the entry point."""
    script = (
        "import os, signal, sys; from slurm_tiresias.cli import begin; "
        "sys.meta_path.insert(0, type('Stops', (), {'find_spec': staticmethod("
        "lambda *_: os.kill(os.getpid(), signal.SIGINT))})); begin.main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "")
