"""Run one policy on a separate cluster, and measure the cost of a preemption."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts import ROOT
from scripts.testbed import place, progress_channel
from scripts.testbed.jobs import accounted, slurm
from scripts.testbed.place import CLUSTER_SCRIPT, DemoError, Place
from scripts.tools.bench.replay import calibrate, jobs
from scripts.tools.bench.replay.calibrate import Calibration
from scripts.tools.bench.replay.jobs import Ran
from scripts.tools.bench.replay.policies import POLICIES, Policy
from scripts.tools.bench.replay.setting import Setting
from scripts.tools.bench.replay.store import JobRuns, Replayed
from scripts.tools.demo.main import STOPPING_SIGNALS
from slurm_tiresias import __version__
from slurm_tiresias.simulator.reports import Reporter
from slurm_tiresias.simulator.workload import TraceJob

CALIBRATION_SEED = 1
SLOWEST = 3.0
"""Limit on the real run's duration, as a multiple of the simulated one."""
LEAST_PATIENCE_S = 120.0
JOB_SUBMIT = ROOT / "etc" / "job_submit.lua"
NUDGE = ROOT / "etc" / "nudge"
REPORTING = ROOT / "scripts" / "testbed" / "reporting_sleeper.py"
SHIP_EVERY_S = 0.5
"""How often the nodes report progress; in compressed time the usual 10 s are too long."""
Show = Callable[[int, int], None]
"""Callback for progress: how many jobs were submitted, and how many have ended."""


def calibrated(where: Place, setting: Setting, show: Show) -> Calibration:
    """Measure the cost of a preemption with a real controller, on jobs that are not replayed."""
    policy = POLICIES["tiresias-l"]
    threshold_gpu_s = setting.thresholds_gpu_s[0] / setting.factor
    own = calibrate.workload(setting.nodes, setting.gpus, threshold_gpu_s, CALIBRATION_SEED)
    with running(where, policy, setting):
        patience_s = LEAST_PATIENCE_S + 2 * own[-1].submitted_s
        return calibrate.calibrated(where, own, patience_s, show)


def replayed(
    where: Place, name: str, setting: Setting, foreseen_s: float, logs: Path, show: Show
) -> Replayed:
    """Run the whole workload under one policy; ``foreseen_s`` is how long that should take."""
    policy = POLICIES[name]
    began_s = time.monotonic()
    with running(where, policy, setting, logs) as faults_so_far:
        submitted = jobs.run(
            where,
            setting.workload().jobs,
            setting.load_s / setting.factor,
            LEAST_PATIENCE_S + SLOWEST * foreseen_s,
            show,
            policy.asking(setting),
            program_of(policy, setting, where),
        )
        told = [jobs.ran(one) for one in submitted]
        rows = accounted(where, {one.job_id for one in submitted})
        faults = [fault for one in submitted for fault in jobs.faults_of(one, rows)]
        faults += faults_so_far()
        on = machine(slurm(where, "sinfo", "--version").strip())
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


def program_of(policy: Policy, setting: Setting, where: Place) -> jobs.Program:
    """Return the program of each job; jobs that report run a different one."""
    library = str(where.folder / progress_channel.LIBRARY)
    model, workload = policy.reports, setting.workload().name
    if model is None:
        return jobs.sleeping
    reporting = (str(REPORTING), library, str(jobs.SLEEPER))

    def program(job: TraceJob) -> Sequence[str]:
        silent = model.reporter(workload, job.job_id) is Reporter.SILENT
        return jobs.sleeping(job) if silent else reporting

    return program


# The cluster


@contextmanager
def running(
    where: Place, policy: Policy, setting: Setting, logs: Path | None = None
) -> Iterator[Callable[[], tuple[str, ...]]]:
    """Start a cluster with all that the policy needs; yield a function that returns faults."""
    own = policy.own(setting)
    config = own.controller_config()
    if policy.reports:
        config += f'\n[profiler]\ncollect_dir = "{where.folder}/collect"\n'
    place.prepare(where, config)
    service: subprocess.Popen[bytes] | None = None
    try:
        if policy.reports:
            progress_channel.set_up(where.folder)
            service = progress_channel.start_service(where.folder, SHIP_EVERY_S)
        yield start(where, policy, own)
    finally:
        with undisturbed():
            if service is not None:
                service.terminate()
                service.wait()
            keep_logs(where, policy, logs)
            place.stop(where)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore signals, so that a second Ctrl-C cannot interrupt the cleanup."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def start(where: Place, policy: Policy, setting: Setting) -> Callable[[], tuple[str, ...]]:
    options = [f"--slurm-conf-line={line}" for line in policy.slurm_conf()]
    if policy.tiers:
        options += hooks(where, setting)
    if policy.reports:
        options.append(f"--conf-file={where.folder}/plugstack.conf")
    up = [str(CLUSTER_SCRIPT), "up", "--dir", str(where.cluster)]
    up += [f"--nodes={setting.nodes}", f"--gpus={setting.gpus}", *options]
    answer = subprocess.run(up, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise DemoError(f"the cluster for {policy.name} did not start: {answer.stderr.strip()}")
    if not policy.tiers:
        return tuple
    controller = place.start_controller(where, replaced=policy.own(setting).constants)

    def faults() -> tuple[str, ...]:
        place.check_controller(where, controller)
        return place.failed_cycles(where.controller_log.read_text())

    return faults


def hooks(where: Place, setting: Setting) -> list[str]:
    """Return options that make Slurm nudge the controller when jobs arrive and end, like those in
    etc/."""
    nudge_file = where.state / "nudge"
    lua = where.folder / JOB_SUBMIT.name
    text = JOB_SUBMIT.read_text()
    text = with_local(text, "first_look_s", str(math.ceil(setting.interval_s) + 2))
    lua.write_text(with_local(text, "nudge_file", f'"{nudge_file}"'))
    epilog = where.folder / "epilog"
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
        raise DemoError(f"{JOB_SUBMIT} has no setting {name}")
    return text


def keep_logs(where: Place, policy: Policy, logs: Path | None) -> None:
    """Keep the logs for diagnosing a failed run, since the cluster's folder is removed."""
    if logs is None:
        return
    for log in (where.controller_log, where.cluster / "log" / "slurmctld.log"):
        if log.exists():
            shutil.copyfile(log, logs / f"{policy.name}.{log.name}")
