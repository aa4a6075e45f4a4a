"""Run one policy on a separate cluster, and measure the cost of a preemption."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed import progress_channel
from scripts.testbed.constants import in_environment
from scripts.testbed.progress_sleeper import KINDS
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from scripts.tools.bench.replay import calibrate, jobs
from scripts.tools.bench.replay.calibrate import Calibration
from scripts.tools.bench.replay.jobs import Ran
from scripts.tools.bench.replay.policies import POLICIES, Policy
from scripts.tools.bench.replay.setting import Setting
from scripts.tools.bench.replay.store import JobRuns, Replayed
from slurm_tiresias import __version__
from slurm_tiresias.simulator.reports import Reporter
from slurm_tiresias.simulator.workload import TraceJob

CALIBRATION_SEED = 1
SLOWEST = 3.0
"""Limit on the real run's duration, as a multiple of the simulated one."""
LEAST_PATIENCE_S = 120.0
JOB_SUBMIT = ROOT / "etc" / "job_submit.lua"
NUDGE = ROOT / "etc" / "nudge"
WITH_PROGRESS = ROOT / "scripts" / "testbed" / "progress_sleeper.py"
SHIP_EVERY_S = 0.5
"""How often the nodes report progress; in compressed time the usual 10 s are too long."""
Show = Callable[[int, int], None]
"""Callback for progress: how many jobs were submitted, and how many have ended."""


def calibrated(setting: Setting, show: Show) -> Calibration:
    """Measure the cost of a preemption with a real controller, on jobs that are not replayed."""
    threshold_gpu_s = setting.thresholds_gpu_s[0] / setting.factor
    own = calibrate.workload(setting.nodes, setting.gpus, threshold_gpu_s, CALIBRATION_SEED)
    with running(POLICIES["tiresias-l"], setting) as (cluster, _):
        patience_s = LEAST_PATIENCE_S + 2 * own[-1].submitted_s
        return calibrate.calibrated(cluster, own, patience_s, show)


def replayed(name: str, setting: Setting, foreseen_s: float, logs: Path, show: Show) -> Replayed:
    """Run the whole workload under one policy; ``foreseen_s`` is how long that should take."""
    policy = POLICIES[name]
    began_s = time.monotonic()
    with running(policy, setting, logs) as (cluster, controller):
        submitted = jobs.run(
            cluster,
            setting.workload().jobs,
            setting.load_s / setting.factor,
            LEAST_PATIENCE_S + SLOWEST * foreseen_s,
            show,
            policy.asking(setting),
            program_of(policy, setting, cluster.folder.parent),
        )
        told = [jobs.ran(one) for one in submitted]
        rows = cluster.ended_runs({one.job_id for one in submitted})
        faults = [fault for one in submitted for fault in jobs.faults_of(one, rows)]
        faults += controller.faults() if controller else []
        on = machine(cluster.run("sinfo", "--version").strip())
    return Replayed(
        policy=name,
        machine=on,
        took_s=time.monotonic() - began_s,
        jobs=as_slow_as_in_the_paper(told, setting.factor),
        faults=tuple(faults),
    )


def machine(slurm_version: str) -> str:
    """Return a description of this machine and its Slurm."""
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return (
        f"{os.cpu_count()} cores, {system}, Python {platform.python_version()}, "
        f"{slurm_version}, slurm-tiresias {__version__}"
    )


def as_slow_as_in_the_paper(told: list[Ran], factor: float) -> tuple[JobRuns, ...]:
    """Return times since the first submission, scaled back to the paper's speed."""
    first_s = min(ran.submitted_s for ran in told)

    def slow(at_s: float) -> float:
        return (at_s - first_s) * factor

    return tuple(
        JobRuns(
            ran.job.job_id,
            slow(ran.submitted_s),
            tuple((slow(start_s), slow(end_s)) for start_s, end_s in ran.runs),
        )
        for ran in told
    )


def program_of(policy: Policy, setting: Setting, folder: Path) -> jobs.Program:
    """Return the program of each job; jobs that report or print run different ones."""
    library = str(folder / progress_channel.LIBRARY)
    model, workload = policy.reports, setting.workload().name
    if model is None:
        return jobs.sleeping

    def program(job: TraceJob) -> Sequence[str]:
        if model.reporter(workload, job.job_id) is Reporter.SILENT:
            return jobs.sleeping(job)
        kind = zlib.crc32(job.job_id.encode()) % len(KINDS)
        return (str(WITH_PROGRESS), str(kind) if policy.prints else library, str(jobs.SLEEPER))

    return program


# The cluster


@contextmanager
def running(
    policy: Policy, setting: Setting, logs: Path | None = None
) -> Iterator[tuple[RealCluster, RealController | None]]:
    """Run a cluster with all that the policy needs; its logs are kept for a diagnosis."""
    own = policy.own(setting)
    tables: dict[str, Mapping[str, object]] = {**own.tables, "constants": own.constants}
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        options = [f"--nodes={own.nodes}", f"--gpus={own.gpus}"]
        options += [f"--slurm-conf-line={line}" for line in policy.slurm_conf()]
        options += hooks(folder, own) if policy.tiers else []
        if policy.reports:
            auto = ("progress=auto",) if policy.prints else ()
            options.append(f"--conf-file={progress_channel.set_up(folder, *auto)}")
            tables["profiler"] = {"collect_dir": f"{folder}/collect"}
        cluster = stack.enter_context(started_cluster(folder, *options))
        jobs.journals_of(cluster).mkdir()
        if policy.reports:
            environment = {**os.environ, **in_environment(own.output_constants)}
            service = progress_channel.start_service(folder, SHIP_EVERY_S, environment)
            stack.callback(service.wait)
            stack.callback(service.terminate)
        log = folder / "controller.log"
        if logs:
            stack.callback(keep, (log, cluster.folder / "log" / "slurmctld.log"), logs, policy)
        controller = None
        if policy.tiers:
            controller = RealController(cluster, folder, tables, defaults={}, log_file=log)
            stack.callback(controller.end)
            controller.start()
        yield cluster, controller


def keep(files: Sequence[Path], folder: Path, policy: Policy) -> None:
    for file in files:
        if file.exists():
            shutil.copyfile(file, folder / f"{policy.name}.{file.name}")


def hooks(folder: Path, setting: Setting) -> list[str]:
    """Return options that make Slurm nudge the controller when jobs arrive and end, like those in
    etc/."""
    nudge_file = folder / "nudge"
    lua = folder / JOB_SUBMIT.name
    text = JOB_SUBMIT.read_text()
    text = with_local(text, "first_look_s", str(math.ceil(setting.interval_s) + 2))
    lua.write_text(with_local(text, "nudge_file", f'"{nudge_file}"'))
    epilog = folder / "epilog"
    epilog.write_text(f"#!/bin/sh\nTIRESIAS_NUDGE_FILE={nudge_file} exec {NUDGE}\n")
    epilog.chmod(0o755)
    return [
        "--slurm-conf-line=JobSubmitPlugins=lua",
        f"--conf-file={lua}",
        f"--slurm-conf-line=EpilogSlurmctld={epilog}",
    ]


def with_local(lua: str, name: str, value: str) -> str:
    """Return the script with another value for one of the settings at its top."""
    text, found = re.subn(rf"(?m)^local {name} = .*$", f"local {name} = {value}", lua)
    if found != 1:
        raise click.ClickException(f"{JOB_SUBMIT} has no setting {name}")
    return text
