"""The demo's command line, and its steps from an empty folder to the table."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from scripts.testbed import progress_channel
from scripts.testbed.cluster.locks import hold
from scripts.testbed.cluster.model import MARK
from scripts.testbed.real_cluster import SCRIPT
from scripts.testbed.real_controller import RealController
from scripts.tools.bench.replay.setting import SCHEDULER, Setting
from scripts.tools.demo import jobs, screen
from scripts.tools.demo.jobs import Run
from scripts.tools.demo.measure import Result, measured
from scripts.tools.demo.mix import (
    BEYOND_WINDOW_MIN,
    GPUS_PER_NODE,
    JOBS,
    NODES,
    SPEED,
    Job,
    make_jobs,
    setting,
)
from scripts.tools.stopping import ignore, stop_in_order

FOREIGN = ("SLURM", "SBATCH_", "SQUEUE_", "SACCT_")
"""How variables begin by which commands would use another Slurm."""
FOLDER = Path(f"/tmp/slurm-tiresias-demo-{os.getuid()}")
SIGN = "slurm-tiresias-demo"
"""The file that marks a folder as the demo's, which may therefore be removed."""
CLUSTER = (
    *(f"--nodes={NODES}", f"--gpus={GPUS_PER_NODE}"),
    f"--slurm-conf-line=SchedulerParameters={SCHEDULER}",
    *("--slurm-conf-line=PriorityWeightAge=1000", "--slurm-conf-line=PriorityMaxAge=1-0"),
)
Tables = Mapping[str, Mapping[str, object]]
SHIP_EVERY_S = 0.5
BUILD_PACKAGES = ("gcc", "libc6-dev", "libslurm-dev", "make")
"""What the SPANK plugin is built with, by which jobs report."""
SLURM, LIMITS, REPORTS = "stock Slurm", "Tiresias", "Tiresias, jobs report"
SHOWN_JOB = Job("wide", "", gpus=16, steps=7200, arrives_s=0)
"""A wide job of half an hour, left running so that users can look at it as narrow ones arrive."""
SHOWN_NARROW_GPUS = (4, 2, 4, 1)


@click.command()
@click.argument("command", type=click.Choice(("run", "env", "stop")), default="run")
@click.option("--dir", "folder", type=Path, default=FOLDER, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The seed of the jobs.")
@click.option("--keep/--no-keep", default=True, help="Leave the last cluster and its controller.")
def demo(command: str, folder: Path, seed: int, keep: bool) -> None:
    """The same jobs on stock Slurm and with Tiresias."""
    stop_in_order()
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    where = folder.resolve()
    try:
        if command == "env":
            env(where)
        elif command == "stop":
            stop(where)
            page_of(where).unlink(missing_ok=True)
            say("demo: stopped")
        else:
            sys.exit(demonstrate(where, seed, keep))
    except AssertionError as error:
        raise click.ClickException(str(error)) from error


def say(text: str) -> None:
    click.echo(text, err=True)


def this_command(where: Path, *words: str) -> str:
    """Return the command line of the demo for this folder."""
    named = [] if where == FOLDER else ["--dir", str(where)]
    return shlex.join(["./scripts/demo", *words, *named])


def env(where: Path) -> None:
    if not (where / SIGN).exists():
        raise click.UsageError(f"no demo in {where}. Run {this_command(where)} first.")
    kept = three_runs(where)[-1]
    programs = str(where / "bin")
    path = [one for one in os.environ["PATH"].split(":") if one != programs]
    for name, value in {
        "SLURM_CONF": str(kept.cluster.folder / "etc" / "slurm.conf"),
        "TIRESIAS_CONFIG": str(kept.folder / "tiresias.toml"),
        "PATH": ":".join([programs, *path]),
    }.items():
        print(f"export {name}={shlex.quote(value)}")


def prepare(where: Path) -> None:
    """Make an empty folder of our own; what an earlier demo left running there is stopped."""
    if (where / SIGN).exists():
        stop(where)
    if where.exists() and (not where.is_dir() or any(where.iterdir())):
        raise click.UsageError(f"{where} holds something else. Name an empty or new one by --dir.")
    # The one folder of .venv would also change the Python of a shell.
    (where / "bin").mkdir(parents=True)
    (where / "bin" / "tiresias-slurm").symlink_to(Path(sys.prefix) / "bin" / "tiresias-slurm")
    (where / SIGN).touch()


def stop(where: Path) -> None:
    """Stop the clusters and, by their marks, the controllers; remove the folder."""
    if not (where / SIGN).exists():
        say(f"demo: nothing runs in {where}")
        return
    for each in three_runs(where):
        each.cluster.down()
    shutil.rmtree(where, ignore_errors=True)


def demonstrate(where: Path, seed: int, keep: bool) -> int:
    if (lock := hold(f"demo{where}")) is None:
        raise click.UsageError(
            f"another demo works in {where}. End it with Ctrl-C where it runs, or name another "
            "--dir."
        )
    prepare(where)
    runs, kept = three_runs(where), False
    try:
        status = compare(where, runs, seed)
        if keep:
            for each in runs[:-1]:
                each.cluster.down()
            leave_something_to_see(where, runs[-1])
            kept = True
        return status
    finally:
        if not kept:
            ignore()
            stop(where)
        lock.close()


def what(seed: int) -> str:
    return (
        f"{JOBS} jobs of {' and '.join(screen.users())} (seed {seed}) on 4 nodes of 4 GPUs.\n"
        "Stock Slurm at its best: no reservations; the oldest job that fits starts.\n"
        "Tiresias: the same programs, which know nothing of it and save every half hour.\n"
        "Jobs report: the programs use its library; they save when asked, and report.\n"
        f"A restart takes some 3 s, as much as {3 * SPEED // 60} minutes of a site. Other work on "
        "this\nmachine changes all times."
    )


def three_runs(where: Path) -> list[Run]:
    return [
        Run(SLURM, where / "slurm", own_limit_min=BEYOND_WINDOW_MIN),
        Run(LIMITS, where / "tiresias"),
        Run(REPORTS, where / "reports", reports=True),
    ]


def page_of(where: Path) -> Path:
    return where.with_name(f"{where.name}.html")


def compare(where: Path, runs: Sequence[Run], seed: int) -> int:
    console, out, mix = screen.console(stderr=True), screen.console(), make_jobs(seed)
    results = race(console, runs, seed)
    table = screen.result_table(results, Counter(job.kind for job in mix))
    screen.show(out, runs, table)
    screen.save(page_of(where), runs, what(seed), table)
    out.print(f"The schedules as a page: {page_of(where)}", soft_wrap=True)
    faults = [f"{name}: {fault}" for name, one in results.items() for fault in one.faults]
    for fault in faults:
        console.print(f"FAULT: {fault}", markup=False)
    if not faults:
        out.print(f"The journals of all {len(runs) * len(mix)} jobs prove that none lost a step.")
    return 1 if faults else 0


def race(console: Console, runs: Sequence[Run], seed: int) -> dict[str, Result]:
    """Run the jobs of this seed on three new clusters at once."""
    if subprocess.run([str(SCRIPT), "install", *BUILD_PACKAGES], check=False).returncode != 0:
        raise click.ClickException("packages are missing, see above")
    console.print("Starting three clusters, two of them with a controller ...")
    for each in runs:
        start(each, setting(seed))
    console.print(what(seed), markup=False)
    mix = make_jobs(seed)
    with screen.progress(console, len(mix)) as show:
        for _ in jobs.run_all(runs, mix):
            show(runs)
    return {each.name: result_of(each) for each in runs}


def start(each: Run, own: Setting, more: Tables | None = None) -> None:
    """Start a run's cluster and its controller, which ``scripts/cluster down`` ends by its mark."""
    folder, mark = each.folder, {MARK: str(each.cluster.folder)}
    (folder / "jobs").mkdir(parents=True)
    tables = {**own.tables, "constants": own.constants, **(more or {})}
    options = list(CLUSTER)
    if each.reports:
        options.append(f"--conf-file={progress_channel.set_up(folder)}")
        tables["profiler"] = {"collect_dir": f"{folder}/collect"}
    each.cluster.up(*options)
    if each.reports:
        progress_channel.start_service(folder, SHIP_EVERY_S, {**os.environ, **mark})
    if not each.own_limit_min:
        each.controller = RealController(
            *(each.cluster, folder, tables),
            defaults={},
            extra_environment=mark,
            log_file=folder / "controller.log",
        ).start()


def result_of(each: Run) -> Result:
    rows = each.cluster.ended_runs({one.job_id for one in each.submitted})
    result = measured(each.submitted, rows, [jobs.proof(one) for one in each.submitted])
    faults = each.controller.faults() if each.controller else []
    return replace(result, faults=(*result.faults, *faults))


def leave_something_to_see(where: Path, last: Run) -> None:
    """Leave a wide job that narrow ones have just preempted, for status and explain to show."""
    controller = last.controller
    assert controller is not None
    wide = last.submit(SHOWN_JOB)
    controller.wait_until(
        lambda: (job := controller.job(wide.job_id)) and job.tier, "the wide job's demotion"
    )
    for number, gpus in enumerate(SHOWN_NARROW_GPUS, 1):
        last.submit(replace(SHOWN_JOB, name=f"narrow{number}", gpus=gpus))
    say(
        f"""
The last cluster and its controller keep running. To look around:

    eval "$({this_command(where, "env")})"
    tiresias-slurm status
    tiresias-slurm explain {wide.job_id}
    squeue

and to stop everything:

    {this_command(where, "stop")}"""
    )
