"""Facts for the doctor: a recorded cluster without problems, and variants of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_tiresias.config import parse
from slurm_tiresias.doctor.run_folder import RunFolder
from slurm_tiresias.doctor.seen import Controller, Place, Seen, SpankPlugin
from slurm_tiresias.model import Amount, Node
from slurm_tiresias.slurm import parse_config
from slurm_tiresias.slurm.conf_file import PlugstackLine
from slurm_tiresias.slurm.survey import Settings, SurveyedPartition

RECORDED = Path(__file__).parents[1] / "slurm" / "recorded"
RELEASES = sorted(folder.name for folder in RECORDED.iterdir())

STATE_DIR = "/var/lib/slurm-tiresias"
OPTIONAL = PlugstackLine("optional", "/usr/lib/slurm-tiresias/spank_tiresias.so", "/e/plug", 3)
SLURM_USER = 64030


def sound(release: str = "22.05") -> Seen:
    """A cluster without problems: the recorded one of that release, plus what the recording
    lacks."""
    answer = (RECORDED / release / "config.txt").read_text()
    running = {key.lower(): value for key, value in parse_config.settings(answer).items()}
    running |= {
        "slurmuser": f"slurm({SLURM_USER})",
        "schedulerparameters": "bf_interval=2,disable_job_shrink,batch_sched_delay=1,"
        "requeue_delay=1",
        "jobsubmitplugins": "lua",
        "epilogslurmctld": "/etc/slurm-tiresias/nudge",
        "preempttype": "preempt/none",
        "preemptmode": "OFF",
    }
    first, second, third = (int(part) for part in running["slurm_version"].split("."))
    number = (first, second, third)
    node = Node("n1", Amount({"a100": 4}, 16, 8000))
    return Seen(
        config=parse({"controller": {"mode": "enforce"}}),
        config_file="/etc/slurm-tiresias/tiresias.toml",
        config_there=True,
        config_error="",
        release=number,
        running=Settings(running),
        written=Settings(running),
        places={"killwait": "line 7 of /etc/slurm/slurm.conf"},
        slurm_conf="/etc/slurm/slurm.conf",
        cgroup=None,
        plugstack=(OPTIONAL,),
        spank=SpankPlugin(OPTIONAL, number),
        run_folder=RunFolder("/run/slurm-tiresias", True, 32 << 20),
        job_submit='local partitions = { "gpu" }\nlocal write = "priority"\n'
        "tiresias_job_submit()\ntiresias_job_modify()",
        clock_ahead_s=0.4,
        partitions=(partition(),),
        nodes=(node,),
        known_jobs=12,
        pinned=(),
        controller_user="slurm",
        controller_user_id=SLURM_USER,
        admin_level=None,
        state_dir=Place(STATE_DIR, SLURM_USER, "slurm", 0o755),
        state_files=(
            Place(f"{STATE_DIR}/ledger.sqlite", SLURM_USER, "slurm", 0o600),
            Place(f"{STATE_DIR}/state.json", SLURM_USER, "slurm", 0o644),
            Place(f"{STATE_DIR}/tiresias.sock", SLURM_USER, "slurm", 0o666),
        ),
        not_seen=(),
        controller=Controller("enforce", "ctl", 4.0, False, ()),
    )


def partition(name: str = "gpu", **changes: Any) -> SurveyedPartition:
    usual = SurveyedPartition(name, frozenset({"n1"}), 1, False, True)
    return replace(usual, **changes)


def with_settings(seen: Seen, **changes: str) -> Seen:
    """Change slurmctld's settings, and slurm.conf with them."""
    assert seen.settings is not None
    return with_values(seen, {**seen.settings.values, **lower(changes)})


def with_values(seen: Seen, values: Mapping[str, str]) -> Seen:
    return replace(seen, running=Settings(values), written=Settings(values))


def lower(changes: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in changes.items()}


def with_config(seen: Seen, **tables: Mapping[str, Any]) -> Seen:
    controller = {"mode": "enforce", **tables.get("controller", {})}
    return replace(seen, config=parse({**tables, "controller": controller}))
