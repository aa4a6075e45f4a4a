"""Survey how Slurm is set up, from its answers and its configuration files.

Unlike the driver (``commands.py``) it does not stop at errors: what cannot be read, because
slurmctld is down or this user lacks the right, is None, and the reason is kept.
"""

from __future__ import annotations

import pwd
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slurm_tiresias.errors import SlurmUnreachableError, TiresiasError
from slurm_tiresias.model import Node
from slurm_tiresias.slurm import conf_file, notation, parse_config, parse_nodes, pinned, process
from slurm_tiresias.slurm.conf_file import PlugstackLine, Written
from slurm_tiresias.slurm.pinned import PinnedJob
from slurm_tiresias.slurm.protocol import Commands

PING_TIMEOUT_S = 5.0
DEFAULT_SLURM_CONF = Path("/etc/slurm/slurm.conf")
MOST_SCRIPT_BYTES = 1_000_000

_RELEASE = re.compile(r"\b(\d{2})\.(\d{2})\.(\d{1,3})", re.ASCII)
_LUA = re.compile(r"(?:^|[,/])\s*lua\s*(?:,|$)")

Found = TypeVar("Found")

_NUMBER = re.compile(r"\d{1,12}", re.ASCII)
_YES = frozenset({"1", "yes", "true", "y"})

DEFAULTS: Mapping[str, str] = {
    "accountingstoragetype": "accounting_storage/none",
    "jobfileappend": "0",
    "jobrequeue": "1",
    "killwait": "30",
    "maxjobcount": "10000",
    "minjobage": "300",
    "preemptmode": "OFF",
    "preempttype": "preempt/none",
    "proctracktype": "proctrack/cgroup",
    "schedulertype": "sched/backfill",
}
"""Slurm's defaults for keys that slurm.conf does not set, the same in every release since 22.05."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Slurm's settings by lowercase key, from slurmctld or from slurm.conf."""

    values: Mapping[str, str]

    def text(self, key: str) -> str:
        """Return the value as written; "" if it is not set and has no entry in ``DEFAULTS``."""
        value = self.values.get(key.lower(), "")
        return DEFAULTS.get(key.lower(), "") if value in notation.NOTHING else value

    def word(self, key: str) -> str:
        """Return the value in lowercase."""
        return self.text(key).lower()

    def number(self, key: str) -> float | None:
        """Return the number at the start of the value (``30 sec``); None if it has none."""
        found = _NUMBER.match(self.text(key))
        return float(found[0]) if found else None

    def yes(self, key: str) -> bool:
        return self.word(key) in _YES

    def words(self, key: str) -> tuple[str, ...]:
        """Split a comma list into its words, as written."""
        return tuple(filter(None, (word.strip() for word in self.text(key).split(","))))

    def options(self, key: str) -> Mapping[str, str]:
        """Parse a comma list of ``name`` and ``name=value`` into a mapping by lowercase name."""
        pairs = (word.partition("=") for word in self.words(key))
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    def option_number(self, key: str, name: str, default: float) -> float:
        found = _NUMBER.match(self.options(key).get(name, ""))
        return float(found[0]) if found else default


@dataclass(frozen=True, slots=True)
class SurveyedPartition:
    """The settings of one partition."""

    name: str
    nodes: frozenset[str]
    priority_tier: int
    least_loaded: bool
    limits_time: bool
    """Whether jobs without --time get a time limit here."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The results of a survey. None: it could not be read; ``not_seen`` has the reasons.

    ``running`` has slurmctld's own settings, ``written`` those of slurm.conf; ``places`` are where
    these stand: ``line 12 of /etc/slurm/slurm.conf``, by lower-case key.
    ``clock_ahead_s`` is how far slurmctld's clock is ahead of this host's, accurate to a second.
    ``known_jobs`` counts the jobs in slurmctld's memory, each array task separately. ``pinned`` are
    the waiting jobs whose priority was set by hand, known only with priority/multifactor.
    ``admin_level`` is the surveyed user's AdminLevel in accounting.
    """

    release: tuple[int, int, int] | None
    running: Settings | None
    slurm_conf: str
    written: Settings | None
    places: Mapping[str, str]
    cgroup: Settings | None
    plugstack: tuple[PlugstackLine, ...] | None
    job_submit: str | None
    clock_ahead_s: float | None
    partitions: tuple[SurveyedPartition, ...] | None
    nodes: tuple[Node, ...] | None
    known_jobs: int | None
    pinned: tuple[PinnedJob, ...] | None
    admin_level: str | None
    not_seen: tuple[str, ...]


def survey(commands: Commands | None = None, of_user: str = "") -> Survey:
    """Survey Slurm once. ``of_user``: the user whose rights to look up; "" for none."""
    return _Look(commands or Commands(), of_user).survey()


def user_name(user_id: int) -> str:
    """Return the name of a user, or the number if it has none."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


class _Look:
    """One survey in progress."""

    def __init__(self, commands: Commands, of_user: str) -> None:
        self._commands = commands
        self._of_user = of_user
        self._environment = process.environment(commands.environment)
        self._not_seen: list[str] = []

    def survey(self) -> Survey:
        up = self._tried("slurmctld", self._ping) is not None
        config = self._tried("the running configuration", self._config) if up else None
        running = None if config is None else config[0]
        conf = self._slurm_conf(running)
        file, cgroup = self._read(conf, conf_file.settings), conf.with_name("cgroup.conf")
        settings = {**{k: w.value for k, w in (file or {}).items()}, **(running or {})}
        partitions = self._tried("the partitions", self._partitions) if up else None
        accounting = settings.get("accountingstoragetype", "").endswith("slurmdbd")
        multifactor = settings.get("prioritytype", "").endswith("multifactor")
        return Survey(
            release=self._release(running),
            running=None if running is None else Settings(running),
            slurm_conf=str(conf),
            written=_values(file),
            places={key: f"line {at.line} of {at.file}" for key, at in (file or {}).items()},
            cgroup=_values(self._read(cgroup, conf_file.settings, needed=False)),
            plugstack=self._plugstack(conf, settings),
            job_submit=self._job_submit(conf, settings),
            clock_ahead_s=None if config is None else config[1],
            partitions=partitions,
            nodes=self._tried("the nodes", self._nodes) if up else None,
            known_jobs=self._tried("the jobs", self._known_jobs) if up else None,
            pinned=self._tried("the priorities", self._pinned) if up and multifactor else None,
            admin_level=self._rights() if accounting and self._of_user else None,
            not_seen=tuple(self._not_seen),
        )

    def _ping(self) -> str:
        answer = self._run([self._commands.scontrol, "ping"], PING_TIMEOUT_S)
        if " UP" in answer.stdout:
            return answer.stdout
        if answer.stderr.strip():
            raise process.complaint("scontrol ping", answer.stderr)
        said = answer.stdout.strip().partition("\n")[0]
        raise SlurmUnreachableError(f"it is down: {said[:300]}", "start slurmctld")

    def _config(self) -> tuple[Mapping[str, str], float]:
        began_s = time.time()
        answer = self._ask([self._commands.scontrol, "show", "config"])
        # slurmctld's clock shows whole seconds.
        ahead_s = parse_config.clock_s(answer) + 0.5 - (began_s + time.time()) / 2
        return {key.lower(): value for key, value in parse_config.settings(answer).items()}, ahead_s

    def _release(self, running: Mapping[str, str] | None) -> tuple[int, int, int] | None:
        question = [self._commands.scontrol, "--version"]
        printed = (running or {}).get("slurm_version") or self._tried(
            "the release", lambda: self._ask(question, PING_TIMEOUT_S)
        )
        match = _RELEASE.search(printed or "")
        return (int(match[1]), int(match[2]), int(match[3])) if match else None

    def _slurm_conf(self, running: Mapping[str, str] | None) -> Path:
        """Return slurmctld's own slurm.conf if it exists on this host, else this user's."""
        places = ((running or {}).get("slurm_conf"), self._environment.get("SLURM_CONF"))
        found = [Path(place) for place in places if place]
        return next((path for path in found if path.exists()), [*found, DEFAULT_SLURM_CONF][0])

    def _partitions(self) -> tuple[SurveyedPartition, ...]:
        answer = self._ask([self._commands.scontrol, "--all", "--oneliner", "show", "partition"])
        return tuple(
            SurveyedPartition(
                name=has["PartitionName"],
                nodes=frozenset(notation.node_names(has.get("Nodes", ""))),
                priority_tier=notation.whole(has.get("PriorityTier", "1")),
                least_loaded=has.get("LLN") == "YES",
                limits_time=_has_limit(has, "DefaultTime") or _has_limit(has, "MaxTime"),
            )
            for has in map(notation.attributes, answer.split("\n"))
            if "PartitionName" in has
        )

    def _nodes(self) -> tuple[Node, ...]:
        answer = self._ask([self._commands.scontrol, "--all", "--oneliner", "show", "node"])
        return parse_nodes.nodes(answer, (), {})

    def _known_jobs(self) -> int:
        answer = self._ask(
            [self._commands.squeue, "--noheader", "--all", "--array", "--states=all", "--format=%i"]
        )
        return answer.count("\n")

    def _pinned(self) -> tuple[PinnedJob, ...]:
        command = [self._commands.sprio, "--noheader", f"--format={pinned.FORMAT}"]
        return pinned.pinned_jobs(self._ask(command))

    def _rights(self) -> str | None:
        question = ["--noheader", "--parsable2", "show", "user", self._of_user, "format=AdminLevel"]
        return self._tried(
            "the rights in accounting",
            lambda: self._ask([self._commands.sacctmgr, *question]).strip(),
        )

    def _plugstack(
        self, conf: Path, settings: Mapping[str, str]
    ) -> tuple[PlugstackLine, ...] | None:
        named = notation.present(settings.get("plugstackconfig", ""))
        path = Path(named) if named else conf.with_name("plugstack.conf")
        if conf.parent.is_dir() and not path.exists():
            return ()
        return self._read(path, conf_file.plugins)

    def _job_submit(self, conf: Path, settings: Mapping[str, str]) -> str | None:
        if not _LUA.search(settings.get("jobsubmitplugins", "")):
            return None
        return self._read(conf.with_name("job_submit.lua"), _script)

    def _read(
        self, path: Path, read: Callable[[Path], Found], *, needed: bool = True
    ) -> Found | None:
        try:
            return read(path)
        except OSError as error:
            if needed or not isinstance(error, FileNotFoundError):
                self._not_seen.append(f"{path}: {error.strerror or error}")
            return None

    def _tried(self, what: str, look: Callable[[], Found]) -> Found | None:
        try:
            return look()
        except TiresiasError as error:
            self._not_seen.append(f"{what}: {error.what}")
            return None

    def _ask(self, command: Sequence[str], timeout_s: float | None = None) -> str:
        answer = self._run(command, timeout_s or self._commands.timeout_s)
        if answer.status != 0 or "error:" in answer.stderr:
            raise process.complaint(Path(command[0]).name, answer.stderr)
        return answer.stdout

    def _run(self, command: Sequence[str], timeout_s: float) -> process.Answer:
        return process.run(
            command,
            stdin="",
            timeout_s=min(timeout_s, self._commands.timeout_s),
            environment=self._environment,
        )


def _values(written: Mapping[str, Written] | None) -> Settings | None:
    return None if written is None else Settings({key: w.value for key, w in written.items()})


def _script(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(MOST_SCRIPT_BYTES).decode("utf-8", errors="replace")


def _has_limit(partition: Mapping[str, str], key: str) -> bool:
    return partition.get(key, "NONE") not in ("NONE", "UNLIMITED")
