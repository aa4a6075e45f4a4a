"""One test round on a new real cluster: like ``in_memory.py``, as far as visible from outside."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from scripts.testbed.patience import wait_until
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.sites.drawn import REAL_SPEED, USERS, Ask, Site, site
from scripts.testbed.sites.round import PENDING, RUNNING, RefusedError, Round, Shown
from slurm_tiresias.slurm.hostlist import folded
from slurm_tiresias.slurm.notation import span
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.terms import newest_ledger

REAL_USERS = dict(zip(USERS, ("root", "games"), strict=True))
"""Two users that exist on every Debian."""

FULL = 0.8
"""The share of rounds that begin with full nodes."""
LONGEST_S = 10.0
FILL_S = 25.0
"""Run time of the jobs that fill the nodes first; longer, so that there are candidates."""
LOST_AFTER_S = 2 * FILL_S
"""No script runs that long: slurmctld shows a job that it has restored, and whose end it lost."""
DEMOTED_AFTER_S = 5.0
START_BOUND_S = 4.0
BY_ITSELF_S = 15.0
"""Within this time Slurm starts all jobs that it can."""

HANGING = "hanging"

SUBMITTED_WITHIN_S = 1.0
"""Slurm keeps whole seconds."""

BESIDE = (
    "--signal=B:USR1@30",
    "--job-name=one-of-us --dependency=singleton",
    "--nice=100",
    "--comment=tiresias:grace=1",
)

SCRIPT = "trap '' USR1; sleep {seconds:.0f}"
"""The sleep inherits the ignored signal; SIGTERM ends both processes."""

REQUEUES_ITSELF = """
trap 'sleep {after:.0f}; scontrol requeue $SLURM_JOB_ID' USR1
for i in $(seq {seconds:.0f}); do sleep 1; done
"""


@dataclass
class RealRound(Round):
    """A round on a real cluster, as far as visible from outside."""

    cluster: RealCluster = field(kw_only=True)
    controller: RealController = field(kw_only=True)
    hanging: Path = field(kw_only=True)
    """Has a file for each node whose epilogs hang."""
    edits: Counter[str] = field(default_factory=Counter)
    """How often the request of a waiting job was changed after submission."""
    themselves: set[str] = field(default_factory=set)
    """Jobs whose scripts requeue them when they get a signal."""

    events = (4, 16)
    happenings = (
        *("submit",) * 10,
        *("submit_several",) * 2,
        *("drain", "resume", "resume", "hold", "cancel"),
        *("throttle", "exclude", "widen", "top", "suspend", "resume-job", "requeuehold"),
        *("submit_together", "forget", "lose_state", "hang"),
    )
    pauses_s = (0.1, 0.3, 1.0, 3.0)
    look_every_s = 0.5
    quiet_s = 10 * START_BOUND_S
    settles_within_s = 240.0
    early_s, late_s = 1.0, 1.0
    waits_for_slurm = "BeginTime"
    job_changes: ClassVar = {
        **Round.job_changes,
        "top": ("top", PENDING),
        "requeuehold": ("requeuehold", RUNNING),
    }

    @property
    def now_s(self) -> float:
        return time.time()

    def queue(self) -> dict[str, Shown]:
        columns = "JobArrayID:|,State:|,Reason:|,PriorityLong:|,ReqNodes:|"
        rows = (
            line.split("|")
            for line in self.cluster.run("squeue", "-har", "-O", columns).splitlines()
        )
        return {
            row[0].strip(): Shown(row[1].strip(), row[2], int(row[3]), row[4].strip())
            for row in rows
        }

    def pass_time(self, seconds: float) -> None:
        self.cancel_what_slurmctld_lost()
        time.sleep(seconds)

    def cancel_what_slurmctld_lost(self) -> None:
        """Cancel jobs that ended before slurmctld was killed, and that it takes for running since.

        It only finds them when the node registers for the second time, minutes later.
        """
        if not self.counts["forget"]:
            return
        columns = "JobArrayID:|,TimeUsed:|"
        for row in self.cluster.run("squeue", "-har", "-t", "R", "-O", columns).splitlines():
            key, used = row.split("|")[:2]
            if (span(used.strip()) or 0.0) > LOST_AFTER_S:
                self.note(f"lost {key.strip()}")
                self.cluster.run("scancel", key.strip())

    def send(self, wanted: Ask) -> str:
        try:
            key = self._sbatch(wanted, *self.beside())
        except AssertionError as error:
            raise RefusedError(str(error).splitlines()[-1]) from error
        self.edits.pop(key, None)
        self.themselves.discard(key)
        if wanted.submission.requeues_itself_in_s is not None:
            self.themselves.add(key)
        return key

    def set_node(self, name: str, state: str) -> None:
        self._scontrol("update", f"NodeName={name}", f"State={state.upper()}", "Reason=test")

    def set_epilogs(self, name: str, hang: bool) -> None:
        if hang:
            (self.hanging / name).touch()
        else:
            (self.hanging / name).unlink(missing_ok=True)

    def change_job(self, what: str, key: str) -> None:
        if what == "cancel":
            # Slurm cancels a heterogeneous job only as a whole.
            self.cluster.run("scancel", key.partition("+")[0])
        else:
            self._scontrol(what, key)

    def kill_slurmctld(self, lose_state: bool) -> None:
        self.cluster.kill("slurmctld")
        for name in ("job_state", "last_config_lite", "resv_state") if lose_state else ():
            for end in ("", ".old"):
                (self.cluster.folder / "state" / f"{name}{end}").unlink(missing_ok=True)
        self.cluster.start("slurmctld")
        wait_until(lambda: self.cluster.answers("squeue"), "slurmctld is back")

    def stop_controller(self) -> None:
        # Slurm holds a job, too, if its user excludes a node of a list that it has already.
        refusals = Counter(key for key, _ in self.controller.events("list-refused"))
        if refused := [key for key, count in refusals.items() if count > self.edits[key]]:
            self.find(f"jobs {', '.join(refused)} were held for a list of ours")
        self.controller.stop()

    def leave_alone(self) -> None:
        until_s = time.monotonic() + BY_ITSELF_S
        while self.queue() and time.monotonic() < until_s:
            time.sleep(0.5)

    def preemptions(self) -> Iterable[tuple[str, str, float]]:
        query = "SELECT key, for_job, at_s FROM preemptions ORDER BY at_s"
        return self._in_ledger(query)

    def starts_s(self, key: str) -> Iterable[float]:
        query = "SELECT start_s FROM runs WHERE key = ?"
        return [start_s for (start_s,) in self._in_ledger(query, key)]

    def _in_ledger(self, query: str, *values: str) -> list[Any]:
        with closing(Ledger(newest_ledger(self.controller.state_dir))) as ledger:
            return ledger._database.execute(query, values).fetchall()

    def _sbatch(self, wanted: Ask, *beside: str) -> str:
        seconds = min((wanted.submission.duration_s or math.inf) / REAL_SPEED, LONGEST_S)
        after_s = wanted.submission.requeues_itself_in_s
        script = SCRIPT.format(seconds=seconds)
        if after_s is not None:
            script = REQUEUES_ITSELF.format(seconds=seconds, after=after_s / REAL_SPEED)
        as_user = (f"--uid={REAL_USERS[wanted.submission.user]}", "--chdir=/")
        return self.cluster.sbatch(*as_user, *wanted.options, *beside, script=script)

    def _scontrol(self, *what: str) -> None:
        self.changed_s.append(time.time())
        try:
            self.cluster.run("scontrol", *what)
        except AssertionError:
            self.course.append(f"  refused: scontrol {' '.join(what)}")

    # Events

    def play(self) -> None:
        """Mostly begin with full nodes."""
        if self.random.random() < FULL:
            self.fill()
        super().play()
        self.look_at_ids()
        self.count()

    def fill(self) -> None:
        """Fill each node with a job for all its GPUs, and wait until these are demoted."""
        for node in sorted(self.site.nodes, key=lambda node: -node.gpus):
            parts = [p.name for p in self.site.partitions if node.name in p.nodes]
            managed = [name for name in parts if name in self.site.setup.managed]
            if managed:
                what = (f"--gres=gpu:{node.gpus}", "-p", managed[0], "--mem=100")
                itself = self.random.random() < 0.5
                script = REQUEUES_ITSELF.format(seconds=FILL_S, after=0) if itself else SCRIPT
                key = self.cluster.sbatch(*what, script=script.format(seconds=FILL_S))
                if itself:
                    self.themselves.add(key)
                self.note(f"fill {key}")
        time.sleep(DEMOTED_AFTER_S)

    def beside(self) -> list[str]:
        """Draw options that do not change the resources a job needs."""
        chosen = self.random.choice(BESIDE) if self.random.random() < 0.3 else ""
        return chosen.split()

    def submit_together(self) -> None:
        """Submit a heterogeneous job, which is not managed; sched/builtin accepts none."""
        if not self.site.backfill:
            return
        part = ("--gres=gpu:1", "--mem=100")
        key = self.cluster.sbatch(*part, ":", *part, script=SCRIPT.format(seconds=3))
        self.note(f"het {key}")

    def throttle(self) -> None:
        if arrays := [key for key in self.queue() if "_" in key]:
            array = self.random.choice(arrays).partition("_")[0]
            self.note(f"throttle {array}")
            self._scontrol(
                "update", f"JobId={array}", f"ArrayTaskThrottle={self.random.randint(1, 3)}"
            )

    def exclude(self) -> None:
        if key := self.one(PENDING):
            node = self.random.choice(self.site.nodes).name
            self.note(f"exclude {node} from {key}")
            self._scontrol("update", f"JobId={key}", f"ExcNodeList={node}")
            self.edits[key] += 1

    def widen(self) -> None:
        """Change a job's number of nodes to a range."""
        if key := self.one(PENDING):
            self.note(f"widen {key}")
            self._scontrol("update", f"JobId={key}", f"NumNodes=1-{self.random.randint(2, 4)}")
            self.edits[key] += 1

    # What must hold

    def look_at_the_end(self) -> Mapping[str, Shown]:
        """Report, too, jobs that are held though Slurm alone would start the same request."""
        waited = super().look_at_the_end()
        for key, shown in waited.items():
            if shown.priority == 0 and "BadConstraints" in shown.reason and key not in self.edits:
                self._compare_hold(key)
        return waited

    def _compare_hold(self, key: str) -> None:
        """Report a held job unless Slurm alone also holds the same request."""
        wanted = self.asks.get(key.partition("_")[0])
        try:
            again = self._sbatch(wanted) if wanted else ""
        except AssertionError:
            return
        until_s = time.monotonic() + BY_ITSELF_S
        while again and time.monotonic() < until_s:
            shown = next((j for k, j in self.queue().items() if k.startswith(again)), None)
            if shown is None or shown.state != PENDING:
                self.find(f"job {key} is held, and {again}, which asks for the same, starts")
                return
            if shown.priority == 0:
                return
            time.sleep(0.5)

    def count(self) -> None:
        """Count starts, and preemptions of the jobs that may requeue themselves."""
        for kind, key in self._in_ledger("SELECT kind, job_id FROM events"):
            if key.partition("_")[0] in self.themselves and kind in ("preempted", "requeued"):
                self.counts[f"{kind}, may requeue itself"] += 1
        self.counts["starts"] += self._in_ledger("SELECT COUNT(*) FROM runs")[0][0]

    def look_at_ids(self) -> None:
        """Report jobs that the ledger takes for earlier ones with the same id."""
        query = "SELECT key, submitted_s, IFNULL(ended_s, 1e12) FROM jobs"
        for key, submit_s, ended_s in self._in_ledger(query):
            since_s = self.submitted_s.get(key.partition("_")[0], 0.0) - SUBMITTED_WITHIN_S
            if submit_s < since_s < ended_s:
                self.find(f"job {key} is known as one submitted at {submit_s:.0f}")


def options_of(site: Site, folder: Path) -> list[str]:
    """Return the options of ``scripts/cluster up`` for this site."""
    topology = folder / "topology.conf"
    leaves: dict[str, list[str]] = {}
    for one in site.nodes:
        leaves.setdefault(one.switch, []).append(one.name)
    lines = [f"SwitchName={leaf} Nodes={folded(names)}" for leaf, names in leaves.items()]
    topology.write_text("\n".join([*lines, f"SwitchName=root Switches={','.join(leaves)}", ""]))
    (folder / HANGING).mkdir()
    epilog = folder / "epilog"
    wait = f"while [ -e {folder / HANGING}/$SLURMD_NODENAME ]; do sleep 0.2; done"
    epilog.write_text(f"#!/bin/bash\n{wait}\n")
    epilog.chmod(0o755)
    conf = ["GresTypes=gpu,nvme", "TopologyPlugin=topology/tree", f"Epilog={epilog}"]
    if site.licenses:
        conf.append(f"Licenses=solver:{site.licenses}")
    random = Random(f"slurm.conf {site.seed}")
    conf.append(f"MinJobAge={random.choice((2, 300))}")
    conf.append(f"MaxJobCount={random.choice((100, 10000))}")
    basic = site.setup.write == "pinned" and random.random() < 0.3
    conf.append(f"PriorityType=priority/{'basic' if basic else 'multifactor'}")
    if site.setup.write == "site-factor":
        # The largest weights that fit between two tiers (docs/how-to/operate.md, "Priorities").
        conf += [
            f"PriorityWeight{of}={random.choice((0, 90_000_000))}" for of in ("Age", "JobSize")
        ]
        conf.append("PriorityMaxAge=1")
    if not site.backfill:
        conf.append("SchedulerType=sched/builtin")
    for one in site.nodes:
        kind = f"{one.gpu_type}:" if one.gpu_type else ""
        drives = f",nvme:{one.drives}" if one.drives else ""
        disk = " TmpDisk=100" if one.disk else ""
        gres = f"Gres=gpu:{kind}{one.gpus}{drives}"
        conf.append(f"NodeName={one.name} {gres} Feature={one.rack}{disk}")
    for part in site.partitions[1:]:
        bound = f" MaxNodes={part.most_nodes}" if part.most_nodes else ""
        conf.append(
            f"PartitionName={part.name} Nodes={folded(part.nodes)} "
            f"PriorityTier={part.priority_tier}{bound}"
        )
    types = ",".join(f"{one.name}={one.gpu_type}" for one in site.nodes if one.gpu_type)
    options = ["--nodes", str(len(site.nodes)), "--gpus", "4", "--no-accounting"]
    options += ["--gpu-type", types] if types else []
    options += ["--conf-file", str(topology)]
    options += ["--partition", *(one.name for one in site.partitions)]
    return options + [word for line in conf for word in ("--slurm-conf-line", line)]


def play(seed: int) -> RealRound:
    """Play one round of about a minute on the site of a seed."""
    drawn = site(seed)
    settings: dict[str, dict[str, object]] = {
        "policy": {"name": drawn.setup.policy, "thresholds_gpu_s": [8, 40]},
        "manage": {"partitions": list(drawn.setup.managed)},
        "priority": {"write": drawn.setup.write},
        "preemption": {
            "checkpoint": f"{drawn.setup.signal}@2" if drawn.setup.signal else "",
            "max_grace_s": 5,
            "min_run_s": 1,
        },
        "controller": {"interval_s": 0.5},
        "constants": {"START_BOUND_S": START_BOUND_S, "RETRY_AFTER_S": 2},
    }
    with short_folder() as folder, started_cluster(folder, *options_of(drawn, folder)) as cluster:
        controller = RealController(cluster, folder, settings).start()
        one = RealRound(
            drawn,
            Random(f"round {seed}"),
            cluster=cluster,
            controller=controller,
            hanging=folder / HANGING,
        )
        try:
            one.play()
        finally:
            for node in drawn.nodes:
                one.set_epilogs(node.name, hang=False)
            if controller.process is not None:
                controller.stop()
        return one
