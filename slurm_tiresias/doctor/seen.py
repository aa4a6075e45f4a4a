"""Everything that the checks go by, as it was at one moment. Nothing in here looks anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_tiresias.config import Config
from slurm_tiresias.doctor.run_folder import RunFolder
from slurm_tiresias.model import Node
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
"""What Slurm takes where slurm.conf is silent, in every release from 22.05 on."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Slurm's settings by key in small letters: slurmctld's own, or those of slurm.conf."""

    values: Mapping[str, str]

    def text(self, key: str) -> str:
        """As it is written; "" where it is not set and has no default here."""
        value = self.values.get(key.lower(), "")
        return DEFAULTS.get(key.lower(), "") if value in _NOTHING else value

    def word(self, key: str) -> str:
        """In small letters."""
        return self.text(key).lower()

    def number(self, key: str) -> float | None:
        """The number that it begins with (``30 sec``); None where there is none."""
        found = _NUMBER.match(self.text(key))
        return float(found[0]) if found else None

    def yes(self, key: str) -> bool:
        return self.word(key) in _YES

    def words(self, key: str) -> tuple[str, ...]:
        """A comma list, each as it is written."""
        return tuple(filter(None, (word.strip() for word in self.text(key).split(","))))

    def options(self, key: str) -> Mapping[str, str]:
        """A comma list of ``name`` and ``name=value``, by name in small letters."""
        pairs = (word.partition("=") for word in self.words(key))
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    def option_number(self, key: str, name: str, default: float) -> float:
        found = _NUMBER.match(self.options(key).get(name, ""))
        return float(found[0]) if found else default


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder: whose it is, and who may do what. ``mode`` has the permission bits."""

    path: str
    owner_id: int
    owner: str
    mode: int


@dataclass(frozen=True, slots=True)
class SpankPlugin:
    """The plugin's line in plugstack.conf, and the release that its file was built for."""

    line: PlugstackLine
    release: tuple[int, int, int] | None
    missing: str = ""
    """Why its file cannot be read; empty where it can."""


@dataclass(frozen=True, slots=True)
class Controller:
    """What a controller says of itself. ``quiet_s`` is how long ago it last had a good cycle."""

    mode: str
    host: str
    quiet_s: float
    stale: bool
    repaired: tuple[str, ...]
    """Jobs, of those in its last events, whose priority another writer had changed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen. None: it could not be seen; ``not_seen`` says why."""

    config: Config
    """What tiresias.toml says; the defaults where there is none or it is wrong."""
    config_file: str
    config_there: bool
    config_error: str
    release: tuple[int, int, int] | None
    settings: Settings | None
    """What slurmctld goes by; what slurm.conf says, where slurmctld does not answer."""
    running: bool
    """Whether slurmctld answers, and the settings are its own."""
    written: Settings | None
    """What slurm.conf says."""
    places: Mapping[str, str]
    """Where each setting of slurm.conf stands: ``/etc/slurm/slurm.conf line 12``."""
    slurm_conf: str
    cgroup: Settings | None
    plugstack: tuple[PlugstackLine, ...] | None
    spank: SpankPlugin | None
    run_folder: RunFolder | None
    """The plugin's; None where this host has none."""
    job_submit: str | None
    clock_ahead_s: float | None
    partitions: tuple[SurveyedPartition, ...] | None
    nodes: tuple[Node, ...] | None
    known_jobs: int | None
    pinned: tuple[PinnedJob, ...] | None
    """Waiting jobs of any partition whose priority was set by hand; None also where this Slurm's
    way of computing priorities does not tell."""
    controller_user: str
    """Who runs the controller: the owner of its state directory; "" where there is none yet."""
    controller_user_id: int | None
    admin_level: str | None
    """Of that user, in accounting."""
    state_dir: Place | None
    """None where there is none."""
    state_files: tuple[Place, ...]
    controller: Controller | None
    """None where none has published anything that this user may read."""
    not_seen: tuple[str, ...] = field(default=())

    @property
    def differences(self) -> releases.Release:
        """What is different on this release; one that is not known lacks what newer ones have."""
        return releases.of(self.release or releases.UNKNOWN)

    @property
    def slurm_conf_folder(self) -> str:
        return self.slurm_conf.rpartition("/")[0]

    @property
    def managed(self) -> tuple[SurveyedPartition, ...]:
        """The managed partitions that there are."""
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
