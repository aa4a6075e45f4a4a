"""Seeing everything that the checks go by. It changes nothing, and needs no controller."""

from __future__ import annotations

import stat
import time
from collections.abc import Mapping
from pathlib import Path

from slurm_tiresias.config import Config, load
from slurm_tiresias.doctor.run_folder import run_folder
from slurm_tiresias.doctor.seen import Controller, Place, Seen, Settings, SpankPlugin
from slurm_tiresias.errors import ConfigError, NotRunningError, RefusedError
from slurm_tiresias.slurm import spank_build
from slurm_tiresias.slurm.conf_file import PlugstackLine, Written
from slurm_tiresias.slurm.protocol import Commands
from slurm_tiresias.slurm.survey import Survey, survey, user_name
from slurm_tiresias.status import published

PLUGIN_NAME = "spank_tiresias.so"
QUIET_INTERVALS = 3
QUIET_GRACE_S = 5.0
REPAIRED = "repaired"
"""The event of a priority that was changed from outside."""


def look(config_file: Path, commands: Commands | None = None) -> Seen:
    """See everything as this user, with the configuration in this file or, without it, defaults."""
    config, error = _config(config_file)
    folder = Path(config.controller.state_dir)
    state_dir = _place(folder)
    files: tuple[Place, ...] = ()
    barred: tuple[str, ...] = ()
    found = survey(commands, of_user=state_dir.owner if state_dir else "")
    try:
        files = _files_in(folder) if state_dir else ()
    except OSError as refused:
        barred = (f"{folder}: {refused.strerror}",)
    written = _values(found.file)
    spank = _spank(found.plugstack or ())
    return Seen(
        config=config,
        config_file=str(config_file),
        config_there=config_file.exists(),
        config_error=error,
        release=found.release,
        settings=Settings(found.running) if found.running is not None else written,
        running=found.running is not None,
        written=written,
        places=_places(found.file or {}),
        slurm_conf=found.slurm_conf,
        cgroup=_values(found.cgroup),
        plugstack=found.plugstack,
        spank=spank,
        run_folder=run_folder(spank.line) if spank else None,
        job_submit=found.job_submit,
        clock_ahead_s=found.clock_ahead_s,
        partitions=found.partitions,
        nodes=found.nodes,
        known_jobs=found.known_jobs,
        pinned=found.pinned,
        controller_user=state_dir.owner if state_dir else "",
        controller_user_id=state_dir.owner_id if state_dir else None,
        admin_level=found.admin_level,
        state_dir=state_dir,
        state_files=files,
        controller=_controller(folder),
        not_seen=_not_seen(found, barred),
    )


def _config(path: Path) -> tuple[Config, str]:
    """The configuration, and what is wrong with its file: the defaults then count."""
    if not path.exists():
        return Config(), ""
    try:
        return load(path), ""
    except ConfigError as error:
        return Config(), str(error).rstrip(".")


def _values(written: Mapping[str, Written] | None) -> Settings | None:
    return None if written is None else Settings({key: w.value for key, w in written.items()})


def _places(written: Mapping[str, Written]) -> Mapping[str, str]:
    return {key: f"line {each.line} of {each.file}" for key, each in written.items()}


def _not_seen(found: Survey, barred: tuple[str, ...]) -> tuple[str, ...]:
    return (*found.not_seen, *barred)


def _spank(lines: tuple[PlugstackLine, ...]) -> SpankPlugin | None:
    for line in lines:
        if Path(line.path).name == PLUGIN_NAME:
            try:
                return SpankPlugin(line, spank_build.built_for(Path(line.path)))
            except OSError as error:
                return SpankPlugin(line, None, error.strerror or str(error))
    return None


def _place(path: Path) -> Place | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return Place(str(path), found.st_uid, user_name(found.st_uid), stat.S_IMODE(found.st_mode))


def _files_in(folder: Path) -> tuple[Place, ...]:
    places = (_place(path) for path in sorted(folder.iterdir()))
    return tuple(place for place in places if place)


def _controller(folder: Path) -> Controller | None:
    try:
        state = published.read(folder)
    except (NotRunningError, RefusedError):
        return None
    quiet_s = time.time() - state.at_s
    return Controller(
        mode=state.mode,
        host=state.host,
        quiet_s=quiet_s,
        stale=quiet_s > QUIET_INTERVALS * state.interval_s + QUIET_GRACE_S,
        repaired=tuple(dict.fromkeys(e.job_id for e in state.events if e.kind == REPAIRED)),
    )
