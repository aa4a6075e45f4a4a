"""job_submit plugins, site factors, and the project's SPANK plugin on the nodes."""

from __future__ import annotations

import json
import re

from slurm_tiresias.controller.bands import is_in_a_band
from slurm_tiresias.doctor import run_folder
from slurm_tiresias.doctor.checks.files import (
    JOB_SUBMIT,
    PLUGSTACK_CONF,
    installing,
    known,
    slurm_conf,
)
from slurm_tiresias.doctor.finding import Finding, Mend, check, error, note, ok, warning
from slurm_tiresias.doctor.seen import Seen
from slurm_tiresias.slurm import release
from slurm_tiresias.slurm.survey import Settings

MOST_NAMED = 8
"""Most jobs that a finding lists by id."""

PLUGIN = "/usr/lib/slurm-tiresias/spank_tiresias.so"
RUN_UNIT = r"run-slurm\x2dtiresias.mount"
RUN_OPTIONS = "size=32m,nr_inodes=300,mode=0755,nodev,nosuid,noexec"
"""The same as in etc/slurm-tiresias.mount."""
OURS, OURS_TOO = "tiresias_job_submit", "tiresias_job_modify"
"""The functions of etc/job_submit.lua, by which a script is recognized as that file."""

HARMLESS = frozenset({"lua", "defaults", "logging", "require_timelimit", "pbs", "cray_aries"})
ALL_PARTITIONS = "all_partitions"

_LUA_COMMENT = re.compile(r"--\[\[.*?\]\]|--[^\n]*", re.DOTALL)
_SETS_PRIORITY = re.compile(r"\.\s*(?:priority|site_factor)\s*=[^=]")
_PARTITIONS = re.compile(r"local\s+partitions\s*=\s*\{([^}]*)\}")
_WRITE = re.compile(r'local\s+write\s*=\s*"([^"]*)"')
_WORD = re.compile(r'"([^"]*)"')


@check("settings")
def _job_submit(seen: Seen) -> Finding:
    """With job_submit.lua a new job starts in the top tier at once, and users' hints are read."""
    plugins = _submit_plugins(known(seen))
    if "lua" not in plugins:
        both = ",".join([*plugins, "lua"])
        return note(
            "new jobs wait for the next cycle behind all others, and hints are not read",
            slurm_conf("JobSubmitPlugins", both),
            do=installing(JOB_SUBMIT, f"{seen.slurm_conf_folder}/{JOB_SUBMIT}"),
        )
    if seen.job_submit is None:
        return note("job_submit.lua cannot be read here")
    script = _LUA_COMMENT.sub("", seen.job_submit)
    for function in (OURS, OURS_TOO):
        if function not in script:
            return note(
                f"job_submit.lua does not call {function}",
                do=("tiresias-slurm init    # the top of job_submit.lua says how yours calls it",),
            )
    return _own_script(seen, script)


def _own_script(seen: Seen, script: str) -> Finding:
    """Check that partitions and write mode, which the script repeats, match the configuration."""
    mends = []
    partitions, write = _PARTITIONS.search(script), _WRITE.search(script)
    wanted = seen.config.manage.partitions
    if partitions and set(_WORD.findall(partitions[1])) != set(wanted):
        named = ", ".join(json.dumps(name) for name in wanted)
        mends.append(Mend(JOB_SUBMIT, "local partitions", f"{{ {named} }}"))
    if write and write[1] != _write(seen):
        mends.append(Mend(JOB_SUBMIT, "local write", f'"{_write(seen)}"'))
    if mends:
        return warning("job_submit.lua and tiresias.toml do not agree", *mends)
    return ok("job_submit.lua hands new jobs over")


def _write(seen: Seen) -> str:
    if seen.config.controller.mode == "shadow":
        return "nothing"
    return "priority" if seen.config.priority.write == "pinned" else "site-factor"


@check("settings")
def _other_writers(seen: Seen) -> Finding:
    """Another program that writes priorities and the controller would overwrite each other."""
    has = known(seen)
    # all_partitions has a separate check.
    known_plugins = HARMLESS | {ALL_PARTITIONS}
    unknown = [name for name in _submit_plugins(has) if name not in known_plugins]
    found = [f"JobSubmitPlugins={name}" for name in unknown]
    script = _LUA_COMMENT.sub("", seen.job_submit or "")
    if _SETS_PRIORITY.search(script) and OURS not in script:
        found.append("job_submit.lua sets priorities")
    if seen.config.priority.write == "site-factor" and has.text("PrioritySiteFactorPlugin"):
        found.append(f"PrioritySiteFactorPlugin={has.text('PrioritySiteFactorPlugin')}")
    do: tuple[str, ...] = ()
    if seen.controller is not None and seen.controller.repaired:
        named = _some(seen.controller.repaired)
        found.append(f"others have changed the priority of {named} lately")
        do = ("tiresias-slurm history JOBID    # when, and to which priority",)
    # Priorities inside a band of the tiers were set by this controller.
    foreign = (
        job.job_id
        for job in seen.pinned or ()
        if job.partition in seen.config.manage.partitions
        and not is_in_a_band(job.priority, "pinned")
    )
    if pinned := tuple(dict.fromkeys(foreign)):
        ids = " ".join(pinned[:MOST_NAMED])
        found.append(f"something else has pinned the priority of {_some(pinned)}, which wait")
        do = (
            *do,
            f"scontrol hold {ids}; scontrol release {ids}    # back to Slurm's own priority",
            "# and end what sets them: scripts that call scontrol update Priority= or scontrol top",
        )
    if not found:
        return ok("nothing else was seen to write priorities")
    return warning("; ".join(found), do=do or ("tiresias-slurm status    # shows which jobs",))


def _some(job_ids: tuple[str, ...]) -> str:
    more = f" and {len(job_ids) - MOST_NAMED} more" if len(job_ids) > MOST_NAMED else ""
    return f"job{'s' * (len(job_ids) > 1)} {', '.join(job_ids[:MOST_NAMED])}{more}"


def _submit_plugins(has: Settings) -> list[str]:
    """Return the plugins' names without the type that may precede them, as in
    ``job_submit/lua``."""
    return [name.removeprefix("job_submit/") for name in has.words("JobSubmitPlugins")]


@check("settings")
def _all_partitions(seen: Seen) -> Finding:
    """A job that may also run in an unmanaged partition is not managed."""
    plugins = _submit_plugins(known(seen))
    if ALL_PARTITIONS not in plugins:
        return ok("jobs stay in the partitions that they name")
    kept = ",".join(name for name in plugins if name != ALL_PARTITIONS)
    return warning(
        "JobSubmitPlugins=all_partitions: jobs that name no partition are in all of them",
        slurm_conf("JobSubmitPlugins", kept or '""'),
    )


@check("plugstack")
def _plugstack(seen: Seen) -> Finding:
    """A required plugin that fails to load stops every job of the cluster; an optional one is
    skipped."""
    if seen.spank is None:
        return note(
            "the SPANK plugin is not installed: users cannot hint, nothing is learned of models",
            Mend(PLUGSTACK_CONF, "optional", PLUGIN),
        )
    line = seen.spank.line
    where = f"{line.file} line {line.line}"
    if line.demand == "optional":
        return ok(f"optional in {where}")
    return error(f"required in {where}", Mend(PLUGSTACK_CONF, "optional", line.path))


@check("plugstack")
def _spank_build(seen: Seen) -> Finding | None:
    """Slurm refuses a plugin that was built for another release."""
    if seen.spank is None:
        return None
    path = seen.spank.line.path
    again = ("make -C spank install    # on login and compute nodes",)
    if seen.spank.missing:
        return note(f"{path} cannot be read on this host: {seen.spank.missing}")
    if seen.spank.release is None:
        return error(f"{path} is no SPANK plugin", do=again)
    built = release.written(seen.spank.release)
    if seen.release is None or seen.spank.release[:2] == seen.release[:2]:
        return ok(f"built for Slurm {built}")
    return error(
        f"{path} is built for Slurm {built}, not {release.written(seen.release)}", do=again
    )


@check("plugstack")
def _run_folder(seen: Seen) -> Finding | None:
    """Users write into files there, and could fill the node's /run, which Slurm and other services
    need."""
    folder = seen.run_folder
    if folder is None:
        return None
    if not folder.on_own_tmpfs:
        table = f"tmpfs {folder.path} tmpfs {RUN_OPTIONS} 0 0"
        by_hand = (f"echo '{table}' >> /etc/fstab", f"mount {folder.path}")
        unit = f"systemctl enable --now '{RUN_UNIT}'    # if the package has brought it; else:"
        return warning(
            f"{folder.path} is not on a separate tmpfs",
            do=(unit, *by_hand) if folder.path == run_folder.DEFAULT else by_hand,
        )
    if folder.limit_bytes is None:
        return warning(
            f"the tmpfs {folder.path} has no size limit",
            do=(f"mount -o remount,{RUN_OPTIONS} {folder.path}    # and so in /etc/fstab",),
        )
    return ok(f"{folder.path} has room for {folder.limit_bytes >> 20} MiB and no more")
