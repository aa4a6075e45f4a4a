"""The facts that the checks judge, as of one moment. This module does no input or output."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.doctor.run_folder import RunFolder
from slurm_tiresias.model import Node
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm import release as releases
from slurm_tiresias.slurm.conf_file import PlugstackLine
from slurm_tiresias.slurm.survey import Settings, Survey, SurveyedPartition


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
class Seen(Survey):
    """The facts. A field is None if it could not be determined; ``not_seen`` says why."""

    config: Config
    """The configuration in tiresias.toml; the defaults if the file is missing or wrong."""
    config_file: str
    config_there: bool
    config_error: str
    spank: SpankPlugin | None
    run_folder: RunFolder | None
    """The SPANK plugin's run folder; None if this host has none."""
    controller_user: str
    """The user who runs the controller: the owner of its state directory; "" if none exists yet."""
    controller_user_id: int | None
    state_dir: Place | None
    """None if there is no state directory."""
    state_files: tuple[Place, ...]
    controller: Controller | None
    """None if no controller has published anything that this user may read."""

    @property
    def settings(self) -> Settings | None:
        """Return the settings of slurmctld; those of slurm.conf if slurmctld does not answer."""
        return self.running or self.written

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
