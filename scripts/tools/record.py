"""Record the output of a real cluster's commands, for the tests of the parsers."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import click

from scripts.testbed.hostile_text import HOSTILE_TEXT
from scripts.testbed.job_shapes import OPTIONS
from scripts.testbed.real_cluster import RealCluster
from slurm_tiresias.slurm import job_rows, parse_accounting, process, release, write_lines
from slurm_tiresias.slurm.protocol import Requeue, Unpin, Update, Write

SEPARATOR = "\x1erecorded\x1e"
"""Replaces the random separator, so that the recordings can be split again."""

NOTHING: Mapping[str, str] = MappingProxyType({})

MARKER = "after-recorded-"

TOPOLOGY = """\
SwitchName=leaf-a Nodes=n[1-2]
SwitchName=leaf-b Nodes=n[3-4]
SwitchName=root Switches=leaf-a,leaf-b
"""

STUBBORN = "trap '' TERM; while :; do sleep 1; done"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def record(folder: Path) -> None:
    """Record the output of Slurm's commands in FOLDER/RELEASE, such as tests/slurm/recorded/22.05.

    It starts a separate cluster, submits every shape of job that the tests know, brings jobs and
    nodes into unusual states, and stores each output verbatim.
    """
    with tempfile.TemporaryDirectory(prefix="st-", dir="/tmp") as parent:
        cluster = RealCluster(Path(parent) / "c")
        topology = Path(parent) / "topology.conf"
        topology.write_text(TOPOLOGY)
        cluster.up(
            *("--partition", "gpu", "other", "--slurm-conf-line", "KillWait=30"),
            *("--slurm-conf-line", "Licenses=solver:2"),
            *("--slurm-conf-line", "NodeName=DEFAULT TmpDisk=20"),
            *("--gpu-type", "n4=a100", "--slurm-conf-line", "PartitionName=other PriorityTier=10"),
            *("--slurm-conf-line", "PreemptType=preempt/partition_prio"),
            *("--slurm-conf-line", "PreemptMode=REQUEUE"),
            *("--slurm-conf-line", "TopologyPlugin=topology/tree", "--conf-file", str(topology)),
        )
        try:
            here = answer(cluster, ["squeue", "--version"])
            known = release.of(release.version_in(here))
            folder /= "{:02d}.{:02d}".format(*known.series)
            folder.mkdir(parents=True, exist_ok=True)
            write_answers(cluster, folder, known)
        finally:
            cluster.down()


def write_answers(cluster: RealCluster, folder: Path, known: release.Release) -> None:
    """Create jobs and nodes of all kinds, and write the output of the commands into the folder."""
    submit_shapes(cluster)
    put_into_every_state(cluster)
    scontrol = ["scontrol", "--all", "--oneliner", "--details", "show"]
    answers = {
        "squeue": ["squeue", *job_rows.ARGUMENTS],
        "jobs": [*scontrol, "job"],
        "nodes": [*scontrol, "node"],
        "partitions": [*scontrol, "partition"],
        "topology": [*scontrol, "topology"],
        "config": ["scontrol", "show", "config"],
    }
    printed = job_rows.environment(job_rows.columns(known), SEPARATOR)
    for name, command in answers.items():
        write(folder / f"{name}.txt", nameless(cluster, answer(cluster, command, printed)))
    keys = [*map(str, range(1, 100)), *(f"{n}_{task}" for n in range(1, 100) for task in range(3))]
    accounting = ["sacct", *parse_accounting.arguments(keys, 0.0)]
    write(folder / "sacct.txt", answer(cluster, accounting))
    bring_nodes_into_odd_states(cluster)
    for name in ("nodes", "partitions"):
        write(folder / f"odd-{name}.txt", nameless(cluster, answer(cluster, answers[name])))
    lose_jobs(cluster)
    write(folder / "odd-sacct.txt", answer(cluster, accounting))
    odd = answer(cluster, answers["squeue"], printed)
    write(folder / "odd-squeue.txt", nameless(cluster, odd))
    refused = json.dumps(refusals(cluster), indent=1)
    write(folder / "refusals.json", nameless(cluster, refused) + "\n")


def submit_shapes(cluster: RealCluster) -> None:
    """Submit every shape of job, deferred so that its request stays unchanged.

    They are not held: 24.11 and later show bounds of ``-N`` that no user set until Slurm has tried
    the job.
    """
    for node in ("n1", "n2", "n3", "n4"):
        features = ["AvailableFeatures=fast,ib", "ActiveFeatures=fast,ib"]
        cluster.run("scontrol", "update", f"NodeName={node}", *features)
    for name, options in OPTIONS.items():
        cluster.sbatch("--begin=now+1day", "--job-name", name, *options)


def put_into_every_state(cluster: RealCluster) -> None:
    """Bring a job into each state that can be reached; the jobs are named after their states."""

    def submit(name: str, *options: str, script: str = "sleep 600") -> str:
        job = cluster.sbatch("--job-name", name, *options, script=script)
        return job.split(";")[0]

    cluster.wait_for_state(submit("completed", script="true"), "COMPLETED")
    cluster.wait_for_state(submit("failed", script="false"), "FAILED")
    cancelled = submit("cancelled", "--hold")
    cluster.run("scancel", cancelled)
    cluster.wait_for_state(submit("spread over nodes", "--gpus=3", "-N2"), "RUNNING")
    cluster.wait_for_state(submit("hostile", "--gpus=2", f"--comment={HOSTILE_TEXT}"), "RUNNING")
    hostile = cluster.sbatch(f"--job-name={HOSTILE_TEXT}", "--gres=gpu:1")
    cluster.wait_for_state(hostile, "RUNNING")
    suspended = submit("suspended", "--gres=gpu:1", "-w", "n4")
    cluster.wait_for_state(suspended, "RUNNING")
    cluster.run("scontrol", "suspend", suspended)
    requeued = submit("requeued", "--gres=gpu:1", "-w", "n3")
    cluster.wait_for_state(requeued, "RUNNING")
    cluster.run("scontrol", "requeue", requeued)
    cluster.wait_for_state(requeued, "PENDING")
    array = submit("array", "--array=0-2%1", "--gres=gpu:1")
    cluster.wait_for_state(f"{array}_0", "RUNNING")
    submit("dependent", f"--dependency=afterok:{array}")
    submit("later", "--begin=now+3600")
    submit("no requeue", "--hold", "--no-requeue")
    cluster.run(
        *("sbatch", "--hold", "--output=/dev/null", "--job-name=het"),
        *("--gres=gpu:1", "--wrap", "sleep 1", ":", "--gres=gpu:2"),
    )
    subprocess.Popen(
        ["salloc", "--job-name=interactive", "--gres=gpu:1", "--no-shell"],
        cwd=cluster.folder,
        env=process.environment(cluster.env),
        stderr=subprocess.DEVNULL,
    ).wait()
    completing = submit("completing after a requeue", "--gpus=3", "-N2", script=STUBBORN)
    cluster.wait_for_state(completing, "RUNNING")
    ending = submit("completing at its end", "--gres=gpu:1", script=STUBBORN)
    cluster.wait_for_state(ending, "RUNNING")
    cluster.run("scontrol", "requeue", completing)
    cluster.run("scancel", ending)
    cluster.wait_for_state(completing, "COMPLETING")
    cluster.wait_for_state(ending, "COMPLETING")


def bring_nodes_into_odd_states(cluster: RealCluster) -> None:
    cluster.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=a b State=IDLE")
    cluster.run("scontrol", "update", "NodeName=n2", "State=FAIL", "Reason=test")
    cluster.run(
        *("scontrol", "create", "reservation", "Nodes=n3", "StartTime=now", "Duration=60"),
        *("Users=root", "Flags=ignore_jobs"),
    )
    cluster.wait_until(
        lambda: "RESERVED" in cluster.run("scontrol", "-o", "show", "node", "n3"), "n3 reserved"
    )
    cluster.run("scontrol", "update", "PartitionName=other", "State=DOWN")


def lose_jobs(cluster: RealCluster) -> None:
    """Lose one job to a node failure, one to another job, and one to its user."""
    reservation = cluster.run("scontrol", "-o", "show", "reservation").split("=")[1].split(" ")[0]
    cluster.run("scontrol", "delete", "reservation", reservation)
    cluster.run("scontrol", "update", "PartitionName=other", "State=UP")
    for name in ("lost its node", "preempted", "cancelled while it ran"):
        job = cluster.sbatch("--job-name", name, "-w", "n3", "--mem=5000")
        cluster.wait_for_state(job, "RUNNING")
        if name == "lost its node":
            cluster.run("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=test")
            wait_until_it_left(cluster, job)
            cluster.run("scontrol", "hold", job)
            # The node may be back already, and 22.05 then refuses the update.
            refusal(cluster, ["scontrol", "update", "NodeName=n3", "State=RESUME"])
        elif name == "preempted":
            strong = cluster.sbatch("-p", "other", "-w", "n3", "--mem=5000")
            cluster.wait_for_state(strong, "RUNNING")
            cluster.run("scontrol", "hold", job)
            cluster.run("scancel", strong)
            cluster.wait_for_state(strong, "CANCELLED")
        else:
            cluster.run("scancel", job)
            cluster.wait_for_state(job, "CANCELLED")
    lost, states = {"NODE_FAIL", "PREEMPTED"}, ("sacct", "-D", "-X", "-n", "-o", "state")
    cluster.wait_until(lambda: lost <= set(cluster.run(*states).split()), "accounting has them")


def wait_until_it_left(cluster: RealCluster, job: str) -> None:
    cluster.wait_until(lambda: cluster.squeue_field(job, "State") != "RUNNING", "it left")


def refusals(cluster: RealCluster) -> dict[str, dict[str, object]]:
    """Return what each command prints when it refuses a request, by the kind of error."""
    running, waiting, gone = (
        cluster.run("squeue", "-h", "-t", state, "-o", "%i", "-n", name).split()[0]
        for state, name in (("R", "spread over nodes"), ("PD", "later"), ("all", "completed"))
    )
    writes: list[Write] = [
        Update("99999", priority=5),
        Update(waiting, priority=5),
        Update(running, node_list="n4"),
        Requeue(waiting),
        Requeue(gone),
        Unpin("99999"),
        Update(waiting, node_list="nowhere"),
    ]
    down = "slurmctld is down"
    said = {
        "no such job": refusal(cluster, ["scontrol"], "show job 99999\n"),
        "no such job to cancel": refusal(
            cluster, ["scancel", "--signal=USR1", "--full", "--state=RUNNING", "99999"]
        ),
        "no such job in the queue": refusal(cluster, ["squeue", "-h", "--jobs=99999"]),
        "writes": refusal(cluster, ["scontrol"], write_lines.script(writes, MARKER)),
    }
    said["writes"]["keys"] = [write.key for write in writes]
    cluster.kill("slurmctld")
    said |= {
        f"{down}: ping": refusal(cluster, ["scontrol", "ping"]),
        f"{down}: squeue": refusal(cluster, ["squeue", "-h"]),
        f"{down}: scontrol": refusal(cluster, ["scontrol"], "show config\n"),
        f"{down}: write": refusal(cluster, ["scontrol"], "update JobId=1 Priority=5\n"),
    }
    return said


def refusal(cluster: RealCluster, command: list[str], stdin: str = "") -> dict[str, object]:
    ended = process.run(
        command, stdin=stdin, timeout_s=60.0, environment=process.environment(cluster.env)
    )
    return {"status": ended.status, "stdout": ended.stdout, "stderr": ended.stderr}


def nameless(cluster: RealCluster, text: str) -> str:
    """Return the output without what identifies this machine."""
    text = text.replace(str(cluster.folder), "/tmp/st-recorded/c")
    text = re.sub(r"OS=Linux .*?  RealMemory", "OS=Linux 6.1.0  RealMemory", text)
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "login", text)


def answer(cluster: RealCluster, command: list[str], more: Mapping[str, str] = NOTHING) -> str:
    environment = process.environment(cluster.env) | dict(more)
    ended = process.run(command, stdin="", timeout_s=30.0, environment=environment)
    if ended.status != 0:
        raise SystemExit(f"{command[0]}: {ended.stderr}")
    return ended.stdout


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode())
    print(path)
