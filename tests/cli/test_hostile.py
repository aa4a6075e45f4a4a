"""Hostile text in names, comments, files and arguments never reaches the terminal as control
codes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.cli.columns import COLUMNS
from slurm_tiresias.cli.log import OneLine
from slurm_tiresias.model import EventRecord
from slurm_tiresias.profiler.profile import JOB, MODEL, Key, Profile
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.store import FILE_NAME, ProfileStore
from slurm_tiresias.status.published import PublishedJob, PublishedStandby, PublishedState
from tests.cli.running import Site
from tests.cli.states import NOW_S, state, waiting

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\u2069\n\r\t\x9b31m\u200b\u2028[red]\x00"
"""Window titles, cleared screens, reversed text, newlines, C1 controls, markup, and empty text."""

CODES = {"state", "action", "reason", "job_id"}


def hostile_job(**changes: object) -> PublishedJob:
    """A job with hostile text in every field except those that the controller itself writes."""
    job = waiting("7")
    texts = {f.name: HOSTILE for f in fields(job) if f.type == "str" and f.name not in CODES}
    return replace(job, **{**texts, **changes})  # type: ignore[arg-type]


def hostile_state() -> PublishedState:
    event = EventRecord(NOW_S, HOSTILE, "7", HOSTILE, HOSTILE)
    texts = ("cluster", "slurm_version", "version", "driver", "policy", "order", "only_of", "error")
    more = {"host": HOSTILE, "mode": HOSTILE, "warning": HOSTILE}
    standbys = (PublishedStandby(HOSTILE, 7, wanted=False),)
    return state(
        hostile_job(),
        events=(event,),
        failures=1,
        standbys=standbys,
        **dict.fromkeys(texts, HOSTILE),
        **more,
    )


def shown_on(site: Site, *arguments: str) -> str:
    """Return the output of a command after checking that all of its characters are printable."""
    result = site.run(*arguments)
    said = result.stdout + result.stderr
    assert said, arguments
    assert all(line.isprintable() for line in said.split("\n")), (arguments, said)
    return said


@contextmanager
def hostile_profiles(site: Site) -> Iterator[None]:
    with closing(ProfileStore(site.folder / FILE_NAME)) as store:
        keys = (Key(JOB, HOSTILE, HOSTILE), Key(MODEL, HOSTILE))
        store.save(Profile(key, Skew(10, 100, 3), HOSTILE, 1.0) for key in keys)
        yield


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", "-a", "-o", ",".join(COLUMNS)),
        ("status", "--json"),
        ("explain", "7"),
        ("explain", "7", "--json"),
        ("profile", "list"),
        ("profile", "list", "--json"),
        ("profile", "export"),
    ],
)
def test_commands_print_no_control_codes_of_users(site: Site, arguments: tuple[str, ...]) -> None:
    site.publish(hostile_state())
    with hostile_profiles(site):
        shown_on(site, *arguments)


ARGUMENT = HOSTILE.replace("\x00", "")
"""An argument cannot contain a NUL character."""


@pytest.mark.parametrize(
    "arguments",
    [
        (ARGUMENT,),
        ("status", ARGUMENT),
        (f"--{ARGUMENT}",),
        *(("status", option, ARGUMENT) for option in ("-u", "-j", "-t", "--tier", "-o", "-w")),
        ("explain", ARGUMENT),
        ("config", "check", ARGUMENT),
        ("--config", ARGUMENT, "status"),
        ("profile", "show", ARGUMENT),
        ("profile", "forget", ARGUMENT),
        ("profile", "model", ARGUMENT),
        ("profile", "import", ARGUMENT),
        ("profile", "sample", "--collect", f"/{ARGUMENT}"),
        *(
            (command, option, ARGUMENT)
            for command in ("simulate", "tune")
            for option in ("--trace", "--cluster", "--workload", "--policy", "--thresholds")
        ),
    ],
)
def test_no_control_codes_of_arguments_are_printed(site: Site, arguments: tuple[str, ...]) -> None:
    site.publish(state())
    shown_on(site, *arguments)


@pytest.mark.parametrize(
    "content", [f'x = "{ARGUMENT}"', f"[{ARGUMENT}]", f'[manage]\n"{ARGUMENT!r}" = 1', "\x00\xff"]
)
def test_errors_print_no_control_codes_of_a_file(site: Site, tmp_path: Path, content: str) -> None:
    file = tmp_path / "file"
    file.write_text(content, encoding="latin-1", errors="replace")
    for arguments in (
        ("config", "check", str(file)),
        ("simulate", "--trace", str(file), "--cluster", "1x4"),
        ("simulate", "--cluster", str(file)),
        ("profile", "model", str(file)),
        ("profile", "import", str(file)),
    ):
        shown_on(site, *arguments)


def test_no_error_prints_control_characters_from_environment_variables(site: Site) -> None:
    result = site.run("status", TIRESIAS_CONFIG=ARGUMENT)
    assert result.stderr.rstrip("\n").isprintable()
    result = site.run("status", TIRESIAS_STATUS_FORMAT=ARGUMENT)
    assert result.stderr.rstrip("\n").isprintable()


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_log_record_is_one_printable_line(one: str, two: str) -> None:
    record = logging.LogRecord("tiresias-slurm", logging.WARNING, "", 0, "%s: %s", (one, two), None)
    assert OneLine("%(levelname)s: %(message)s").format(record).isprintable()


def test_status_watch_replaces_control_characters_in_names(site: Site) -> None:
    """On a real terminal, only the program's own escape sequences appear."""
    site.publish(hostile_state())
    _, output = site.on_terminal(100, "status", NO_COLOR="1")
    lines = output.split("\n")
    assert all(line.isprintable() for line in lines), lines
