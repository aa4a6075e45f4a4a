"""Collect all facts for the checks. Changes nothing and needs no running controller."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from slurm_tiresias.config import load
from slurm_tiresias.doctor.run_folder import run_folder
from slurm_tiresias.doctor.seen import Controller, Place, Seen, SpankPlugin
from slurm_tiresias.errors import ConfigError, NotRunningError, RefusedError
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm import spank_build
from slurm_tiresias.slurm.conf_file import PlugstackLine
from slurm_tiresias.slurm.protocol import Commands
from slurm_tiresias.slurm.survey import survey, user_name
from slurm_tiresias.status import published

PLUGIN_NAME = "spank_tiresias.so"
REPAIRED = "repaired"
"""The event noted when another writer had changed a job's priority."""


def look(config_file: Path, commands: Commands | None = None) -> Seen:
    """Collect the facts as the current user; if the configuration file is missing, use defaults."""
    config, error = _config(config_file)
    folder = Path(config.controller.state_dir)
    state_dir = _place(folder)
    files: tuple[Place, ...] = ()
    found = survey(commands, of_user=state_dir.owner if state_dir else "")
    not_seen = found.not_seen
    try:
        places = map(_place, sorted(folder.iterdir())) if state_dir else ()
        files = tuple(place for place in places if place)
    except OSError as refused:
        not_seen = (*not_seen, f"{folder}: {refused.strerror}")
    spank = _spank(found.plugstack or ())
    facts = {field.name: getattr(found, field.name) for field in fields(found)}
    return Seen(
        **{**facts, "not_seen": not_seen},
        config=config,
        config_file=str(config_file),
        config_there=config_file.exists(),
        config_error=error,
        spank=spank,
        run_folder=run_folder(spank.line) if spank else None,
        controller_user=state_dir.owner if state_dir else "",
        controller_user_id=state_dir.owner_id if state_dir else None,
        state_dir=state_dir,
        state_files=files,
        controller=_controller(folder),
    )


def _config(path: Path) -> tuple[Config, str]:
    """Load the configuration; if the file is wrong, return the defaults and the error."""
    if not path.exists():
        return Config(), ""
    try:
        return load(path), ""
    except ConfigError as error:
        return Config(), str(error).rstrip(".")


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


def _controller(folder: Path) -> Controller | None:
    try:
        state = published.read(folder)
    except (NotRunningError, RefusedError):
        return None
    now_s = time.time()
    return Controller(
        mode=state.mode,
        host=state.host,
        quiet_s=now_s - state.at_s,
        stale=state.is_stale(now_s),
        repaired=tuple(dict.fromkeys(e.job_id for e in state.events if e.kind == REPAIRED)),
        slowest_save=slowest_save(state.jobs),
    )


def slowest_save(jobs: Iterable[published.PublishedJob]) -> tuple[float, str]:
    """Return the longest time that a job needs for a step and a save, and the job."""
    reports = ((job.job_id, job.progress) for job in jobs if job.progress)
    return max(
        (
            (told.save_takes_s + max(told.step_s or 0.0, told.longest_step_s or 0.0), job_id)
            for job_id, told in reports
            if told.save_takes_s is not None
        ),
        default=(0.0, ""),
    )
