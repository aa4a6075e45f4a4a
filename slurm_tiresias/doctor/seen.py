"""The facts that the checks judge, as of one moment. This module does no input or output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_tiresias.doctor.run_folder import RunFolder
from slurm_tiresias.model import Node
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm import release as releases
from slurm_tiresias.slurm.conf_file import PlugstackLine
from slurm_tiresias.slurm.pinned import PinnedJob
from slurm_tiresias.slurm.survey import SurveyedPartition

_NOTHING = frozenset({"", "(null)", "N/A"})
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
        return DEFAULTS.get(key.lower(), "") if value in _NOTHING else value

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
class Place:
    """A file or folder with its owner; ``mode`` holds the permission bits."""

    path: str
    owner_id: int
    owner: str
    mode: int


@dataclass(frozen=True, slots=True)
class SpankPlugin:
    """The plugin's line in plugstack.conf, and the Slurm release that the plugin was built for."""

    line: PlugstackLine
    release: tuple[int, int, int] | None
    missing: str = ""
    """Why the plugin's file cannot be read; "" if it can."""


@dataclass(frozen=True, slots=True)
class Controller:
    """What a running controller published. ``quiet_s``: seconds since its last good cycle."""

    mode: str
    host: str
    quiet_s: float
    stale: bool
    repaired: tuple[str, ...]
    """Jobs, in the controller's last events, whose priority another writer had changed."""
    slowest_save: tuple[float, str] = (0.0, "")
    """The longest time that a step and a save take together, as jobs report them, and the job."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The facts. A field is None if it could not be determined; ``not_seen`` says why."""

    config: Config
    """The configuration in tiresias.toml; the defaults if the file is missing or wrong."""
    config_file: str
    config_there: bool
    config_error: str
    release: tuple[int, int, int] | None
    settings: Settings | None
    """The settings of slurmctld; those of slurm.conf if slurmctld does not answer."""
    running: bool
    """Whether slurmctld answers; ``settings`` are then its own."""
    written: Settings | None
    """The settings in slurm.conf."""
    places: Mapping[str, str]
    """The place of each setting in slurm.conf: ``/etc/slurm/slurm.conf line 12``."""
    slurm_conf: str
    cgroup: Settings | None
    plugstack: tuple[PlugstackLine, ...] | None
    spank: SpankPlugin | None
    run_folder: RunFolder | None
    """The SPANK plugin's run folder; None if this host has none."""
    job_submit: str | None
    clock_ahead_s: float | None
    partitions: tuple[SurveyedPartition, ...] | None
    nodes: tuple[Node, ...] | None
    known_jobs: int | None
    pinned: tuple[PinnedJob, ...] | None
    """Pending jobs of any partition whose priority was set by hand; None also if this Slurm's
    priority plugin does not show that."""
    controller_user: str
    """The user who runs the controller: the owner of its state directory; "" if none exists yet."""
    controller_user_id: int | None
    admin_level: str | None
    """The AdminLevel of ``controller_user`` in accounting."""
    state_dir: Place | None
    """None if there is no state directory."""
    state_files: tuple[Place, ...]
    controller: Controller | None
    """None if no controller has published anything that this user may read."""
    not_seen: tuple[str, ...] = field(default=())

    @property
    def differences(self) -> releases.Release:
        """Return what differs in this release; an unknown one is assumed to lack newer features."""
        return releases.of(self.release or releases.UNKNOWN)

    @property
    def slurm_conf_folder(self) -> str:
        return self.slurm_conf.rpartition("/")[0]

    @property
    def managed(self) -> tuple[SurveyedPartition, ...]:
        """Return the managed partitions that exist."""
        names = self.config.manage.partitions
        return tuple(p for p in self.partitions or () if p.name in names)

    @property
    def managed_nodes(self) -> tuple[Node, ...]:
        names = {name for partition in self.managed for name in partition.nodes}
        return tuple(node for node in self.nodes or () if node.name in names)

    def gpus_of(self, partition: SurveyedPartition) -> int:
        """How many GPUs the nodes of a partition have."""
        nodes = (node for node in self.nodes or () if node.name in partition.nodes)
        return sum(node.total.gpu_count for node in nodes)
