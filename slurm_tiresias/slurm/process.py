"""Run Slurm's commands: without a shell, in a known environment, with a time limit."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slurm_tiresias.errors import (
    LeaseLostError,
    SlurmAnswerError,
    SlurmPermissionError,
    SlurmUnreachableError,
    TiresiasError,
)

KNOWN_ENVIRONMENT = {
    "LC_ALL": "C",
    "TZ": "UTC0",
    "SLURM_TIME_FORMAT": "%s",
    "SLURM_BITSTR_LEN": "0",
}
"""Makes the commands print English, times as seconds since the epoch, and full task lists."""

OWN_CLUSTER = {"SQUEUE_LOCAL": "1", "SCONTROL_LOCAL": "1", "SACCT_LOCAL": "1", "SPRIO_LOCAL": "1"}
"""Makes the commands show this cluster's jobs and nodes only, even with
FederationParameters=fed_display."""

_CHANGES_ANSWERS = re.compile(
    r"(?:SQUEUE|SINFO|SACCT|SCONTROL|SCANCEL|SPRIO)_.*|SLURM_CLUSTERS|SLURM_DEBUG.*|LC_.*|LANG|LANGUAGE"
)
"""Variables that an administrator may have set, and that change the commands' output."""

NO_ACCOUNTING = "Slurm accounting storage is disabled"
"""sacct's message on a cluster without accounting."""

UNKNOWN_JOB = "Invalid job id specified"
"""squeue's message for a job that slurmctld does not know."""

MEANWHILE_EVERY_S = 0.2

_ENDED_AT = (sys.executable, "-I", "-S", str(Path(__file__).with_name("ended_at.py")))
"""A wrapper that executes a command which the kernel kills at a given time. ``preexec_fn`` may
hang, since it runs Python in a forked process without its other threads."""

MOST_WORDS = 300
"""How many characters of a command's message are shown."""

_SPEAKER = re.compile(r"^\w+: (?:error|fatal): ")
_NO_CONFIGURATION = re.compile(
    r"Could not establish a configuration source|Unable to process configuration file"
)
_UNREACHABLE = re.compile(
    r"Unable to contact|Connection refused|timed out"
    r"|Zero Bytes were transmitted|standby mode|authentication error"
    r"|problem talking to the database|Unable to connect"
    r"|Unexpected message received",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"access/permission denied|access denied|permission denied|invalid user id", re.IGNORECASE
)


class CutOffError(SlurmUnreachableError):
    """A command was killed before its end, after writing ``complaints`` to standard error."""

    def __init__(self, what: str, remedy: str, complaints: str) -> None:
        super().__init__(what, remedy)
        self.complaints = complaints


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's output and exit status."""

    stdout: str
    stderr: str
    status: int


def environment(extra: Mapping[str, str], *, own_cluster: bool = True) -> dict[str, str]:
    """Return this process's environment without variables that change answers, updated with
    ``extra``, ``KNOWN_ENVIRONMENT`` and, with ``own_cluster``, ``OWN_CLUSTER``."""
    kept = {key: value for key, value in os.environ.items() if not _CHANGES_ANSWERS.fullmatch(key)}
    return kept | dict(extra) | KNOWN_ENVIRONMENT | (OWN_CLUSTER if own_cluster else {})


def run(
    arguments: Sequence[str],
    *,
    stdin: str,
    timeout_s: float,
    environment: Mapping[str, str],
    until_s: float = math.inf,
    meanwhile: Callable[[], None] = lambda: None,
) -> Answer:
    """Run one command to its end; raise ``SlurmUnreachableError`` if it is missing, and
    ``CutOffError`` if it is too slow.

    It runs in a new session, so that a Ctrl-C for this program does not interrupt it. The kernel
    kills it at ``until_s`` (in ``CLOCK_BOOTTIME``), even if this process is gone or stopped; after
    that time it is not started, and ``LeaseLostError`` is raised. ``meanwhile`` is called
    repeatedly while it runs.
    """
    if until_s <= time.clock_gettime(time.CLOCK_BOOTTIME):
        raise LeaseLostError(
            f"{arguments[0]} was not started: this controller's lease is over",
            "nothing needs to be done; the other controller acts",
        )
    try:
        with (
            _to_read(stdin) as given,
            subprocess.Popen(
                arguments if until_s == math.inf else [*_ENDED_AT, repr(until_s), *arguments],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                start_new_session=True,
            ) as child,
        ):
            try:
                stdout, stderr = _outputs(child, timeout_s, meanwhile)
            except BaseException:
                child.kill()
                raise
    except subprocess.TimeoutExpired as error:
        raise CutOffError(
            f"{arguments[0]} gave no answer within {timeout_s:g} s",
            "check whether slurmctld is up and not overloaded (scontrol ping, sdiag)",
            _text(error.stderr or b""),
        ) from None
    except OSError as error:
        raise SlurmUnreachableError(
            f"{arguments[0]} cannot be started: {error.strerror or error}",
            "install Slurm's commands, or put their folder into PATH",
        ) from None
    if child.returncode == -signal.SIGALRM:
        raise CutOffError(
            f"{arguments[0]} did not end before the lease of this controller had to be renewed",
            "check whether slurmctld is overloaded (sdiag)",
            _text(stderr),
        )
    return Answer(_text(stdout), _text(stderr), child.returncode)


def _to_read(text: str) -> IO[bytes]:
    """Return an in-memory file with this text, which works even if the disk is full.

    Not a pipe: after a timeout ``communicate`` stops sending a long input, and if the parent died
    the child would mistake half a line for a whole one.
    """
    file = os.fdopen(os.memfd_create("stdin"), "w+b")
    file.write(text.encode())
    file.seek(0)
    return file


def _outputs(
    child: subprocess.Popen[bytes], timeout_s: float, meanwhile: Callable[[], None]
) -> tuple[bytes, bytes]:
    give_up_s = time.monotonic() + timeout_s
    while True:
        left_s = give_up_s - time.monotonic()
        try:
            return child.communicate(timeout=max(0.0, min(left_s, MEANWHILE_EVERY_S)))
        except subprocess.TimeoutExpired:
            if left_s <= MEANWHILE_EVERY_S:
                raise
        meanwhile()


def complaint(command: str, said: str) -> TiresiasError:
    """Return the error that corresponds to a command's error message."""
    words = " ".join(said.split())[:MOST_WORDS] or "it failed without a word"
    if _NO_CONFIGURATION.search(said):
        return SlurmUnreachableError(
            f"{command} finds no configuration of Slurm: {last_words(said)}",
            "give this host slurm.conf, or name its path in SLURM_CONF",
        )
    if _UNREACHABLE.search(said):
        return SlurmUnreachableError(
            f"{command} cannot reach Slurm: {last_words(said)}",
            "check whether slurmctld, munged and, for sacct, slurmdbd are up",
        )
    if is_denial(said):
        return SlurmPermissionError(
            f"Slurm refuses {command} to this user: {words}",
            "run as SlurmUser or root, or give the user AdminLevel Operator with sacctmgr",
        )
    return SlurmAnswerError(
        f"{command} failed: {words}", "run the command by hand to see what it says"
    )


def last_words(said: str) -> str:
    """Return the last line of a command's messages: those before it only lead up to it."""
    *_, last = ["", *filter(None, map(str.strip, said.split("\n")))]
    return _SPEAKER.sub("", " ".join(last.split()))[:MOST_WORDS]


def is_denial(said: str) -> bool:
    """Whether the message says that this user lacks the right."""
    return _DENIED.search(said) is not None


def _text(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")
