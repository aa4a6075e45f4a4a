"""All settings. Each module but ``declare`` holds the table of its name: the meaning, unit, default
and range of each setting, from which the reference page and the example file are generated."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_tiresias.settings.controller import ControllerConfig
from slurm_tiresias.settings.failures import FailuresConfig
from slurm_tiresias.settings.http import HttpConfig
from slurm_tiresias.settings.idle_gpus import IdleGpusConfig
from slurm_tiresias.settings.interactive import InteractiveConfig
from slurm_tiresias.settings.manage import ManageConfig
from slurm_tiresias.settings.placement import PlacementConfig
from slurm_tiresias.settings.policy import PolicyConfig
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.settings.priority import PriorityConfig
from slurm_tiresias.settings.profiler import ProfilerConfig
from slurm_tiresias.settings.slurm import SlurmConfig


@dataclass(frozen=True)
class Config:
    """The whole configuration file; each field is one of its tables."""

    manage: ManageConfig = field(default_factory=ManageConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    preemption: PreemptionConfig = field(default_factory=PreemptionConfig)
    interactive: InteractiveConfig = field(default_factory=InteractiveConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    profiler: ProfilerConfig = field(default_factory=ProfilerConfig)
    idle_gpus: IdleGpusConfig = field(default_factory=IdleGpusConfig)
    failures: FailuresConfig = field(default_factory=FailuresConfig)
    priority: PriorityConfig = field(default_factory=PriorityConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
