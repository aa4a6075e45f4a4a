"""One test round on a new real cluster: like ``in_memory.py``, as far as visible from outside."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.sites.drawn import USERS, Ask, Site, ask, site, told
from slurm_tiresias.slurm.hostlist import folded
from slurm_tiresias.slurm.notation import span
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.terms import newest_ledger

REAL_USERS = dict(zip(USERS, ("root", "games"), strict=True))
"""Two users that exist on every Debian."""

EVENTS = (4, 16)
FULL = 0.8
"""The share of rounds that begin with full nodes."""
LONGEST_S = 10.0
FILL_S = 25.0
"""Run time of the jobs that fill the nodes first; longer, so that there are candidates."""
LOST_AFTER_S = 2 * FILL_S
"""No script runs that long: slurmctld shows a job that it has restored, and whose end it lost."""
DEMOTED_AFTER_S = 5.0
START_BOUND_S = 4.0
QUIET_S = 10 * START_BOUND_S
SETTLES_WITHIN_S = 240.0
BY_ITSELF_S = 15.0
"""Within this time Slurm starts all jobs that it can."""

HANGING = "hanging"

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


@dataclass(slots=True)
class Round:
    """A running real site, with its log and the errors found."""

    site: Site
    random: Random
    cluster: RealCluster
    controller: RealController
    hanging: Path
    """Has a file for each node whose epilogs hang."""
    course: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    asks: dict[str, Ask] = field(default_factory=dict)
    holds: set[str] = field(default_factory=set)
    edited: set[str] = field(default_factory=set)
    """Waiting jobs whose request was changed after submission."""
    changed_s: list[float] = field(default_factory=list)
    submitted_s: dict[str, float] = field(default_factory=dict)
    """The earliest time of each submission, by job or array id."""
    themselves: set[str] = field(default_factory=set)
    """Jobs whose scripts requeue them when they get a signal."""

    def note(self, what: str) -> None:
        self.course.append(f"{time.time():.1f}: {what}")
        self.counts[what.split()[0]] += 1

    def find(self, what: str) -> None:
        self.found.append(f"{time.time():.1f}: {what}")

    def queue(self) -> dict[str, tuple[str, str, str, str]]:
        """State, reason, priority and required nodes of every job that has not ended, by job."""
        columns = "JobArrayID:|,State:|,Reason:|,PriorityLong:|,ReqNodes:|"
        rows = self.cluster.run("squeue", "-har", "-O", columns).splitlines()
        return {row.split("|")[0].strip(): tuple(row.split("|")[1:5]) for row in rows}  # type: ignore[misc]

    # Events

    def fill(self) -> None:
        """Fill each node with a job for all its GPUs, and wait until these are demoted."""
        for node in sorted(self.site.nodes, key=lambda node: -node.gpus):
            parts = [p.name for p in self.site.partitions if node.name in p.nodes]
            managed = [name for name in parts if name in self.site.managed]
            if managed:
                what = (f"--gres=gpu:{node.gpus}", "-p", managed[0], "--mem=100")
                itself = self.random.random() < 0.5
                script = REQUEUES_ITSELF.format(seconds=FILL_S, after=0) if itself else SCRIPT
                key = self.cluster.sbatch(*what, script=script.format(seconds=FILL_S))
                if itself:
                    self.themselves.add(key)
                self.note(f"fill {key}")
        time.sleep(DEMOTED_AFTER_S)

    def submit(self) -> None:
        self._submit(ask(self.site, self.random))

    def submit_several(self) -> None:
        """Submit several jobs with the same request."""
        wanted = ask(self.site, self.random)
        for _ in range(self.random.randint(2, 5)):
            self._submit(wanted)

    def _submit(self, wanted: Ask) -> None:
        began_s = time.time() - 1.0
        try:
            key = self._sbatch(wanted, *self.beside())
        except AssertionError as error:
            self.note(f"refused {wanted}: {str(error).splitlines()[-1]}")
            return
        self.counts["reused ids"] += key in self.asks
        self.holds.discard(key)
        self.edited.discard(key)
        self.themselves.discard(key)
        self.asks[key] = wanted
        self.submitted_s[key] = began_s
        if wanted.submission.requeues_itself_in_s is not None:
            self.themselves.add(key)
        self.note(f"submit {key} {wanted}")

    def _sbatch(self, wanted: Ask, *beside: str) -> str:
        seconds = min(wanted.submission.duration_s or LONGEST_S, LONGEST_S)
        after_s = wanted.submission.requeues_itself_in_s
        script = SCRIPT.format(seconds=seconds)
        if after_s is not None:
            script = REQUEUES_ITSELF.format(seconds=seconds, after=after_s)
        as_user = (f"--uid={REAL_USERS[wanted.submission.user]}", "--chdir=/")
        return self.cluster.sbatch(*as_user, *wanted.options, *beside, script=script)

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

    def drain(self) -> None:
        self._set_node("drain", "DRAIN")

    def resume(self) -> None:
        self._set_node("resume", "RESUME")

    def _set_node(self, what: str, state: str) -> None:
        name = self.random.choice(self.site.nodes).name
        self.note(f"{what} {name}")
        self._update(f"NodeName={name}", f"State={state}", "Reason=test")

    def hang(self) -> None:
        """Let no epilog on a node end."""
        name = self.random.choice(self.site.nodes).name
        self.note(f"hang {name}")
        (self.hanging / name).touch()
        self.changed_s.append(time.time())

    def let_epilogs_end(self) -> None:
        for file in self.hanging.iterdir():
            file.unlink()

    def hold(self) -> None:
        if key := self._one("PENDING"):
            self.note(f"hold {key}")
            self._scontrol("hold", key)
            self.holds.add(key)

    def throttle(self) -> None:
        if arrays := [key for key in self.queue() if "_" in key]:
            array = self.random.choice(arrays).partition("_")[0]
            self.note(f"throttle {array}")
            self._update(f"JobId={array}", f"ArrayTaskThrottle={self.random.randint(1, 3)}")

    def exclude(self) -> None:
        if key := self._one("PENDING"):
            node = self.random.choice(self.site.nodes).name
            self.note(f"exclude {node} from {key}")
            self._update(f"JobId={key}", f"ExcNodeList={node}")
            self.edited.add(key)

    def widen(self) -> None:
        """Change a job's number of nodes to a range."""
        if key := self._one("PENDING"):
            self.note(f"widen {key}")
            self._update(f"JobId={key}", f"NumNodes=1-{self.random.randint(2, 4)}")
            self.edited.add(key)

    def top(self) -> None:
        if key := self._one("PENDING"):
            self.note(f"top {key}")
            self._scontrol("top", key)

    def suspend(self) -> None:
        if key := self._one("RUNNING"):
            self.note(f"suspend {key}")
            self._scontrol("suspend", key)

    def requeue_and_hold(self) -> None:
        if key := self._one("RUNNING"):
            self.note(f"requeuehold {key}")
            self._scontrol("requeuehold", key)
            self.holds.add(key)

    def cancel(self) -> None:
        if jobs := list(self.queue()):
            # Slurm cancels a heterogeneous job only as a whole.
            key = self.random.choice(jobs).partition("+")[0]
            self.note(f"cancel {key}")
            self.cluster.run("scancel", key)

    def forget(self) -> None:
        """Kill slurmctld, which gives the ids of jobs that it has not saved out again."""
        self._restart_slurmctld("forget")

    def lose_state(self) -> None:
        """Kill slurmctld and delete what it has saved about jobs: ids begin again."""
        self._restart_slurmctld("lose-state", "job_state", "last_config_lite", "resv_state")

    def _restart_slurmctld(self, what: str, *lost: str) -> None:
        self.note(what)
        self.changed_s.append(time.time())
        self.cluster.kill("slurmctld")
        for name in lost:
            for end in ("", ".old"):
                (self.cluster.folder / "state" / f"{name}{end}").unlink(missing_ok=True)
        self.cluster.start("slurmctld")
        self.cluster.wait_until(self._answers, "slurmctld is back")
        self.holds &= self.queue().keys()
        self.changed_s.append(time.time())

    def _answers(self) -> bool:
        try:
            return "UP" in self.cluster.run("scontrol", "ping")
        except AssertionError:
            return False

    def _one(self, state: str) -> str:
        """Draw a job in this state; "" if there is none."""
        found = [key for key, job in self.queue().items() if job[0] == state]
        return self.random.choice(found) if found else ""

    def _update(self, *what: str) -> None:
        self._scontrol("update", *what)

    def _scontrol(self, *what: str) -> None:
        self.changed_s.append(time.time())
        try:
            self.cluster.run("scontrol", *what)
        except AssertionError:
            self.course.append(f"  refused: scontrol {' '.join(what)}")

    def let_all_run(self) -> None:
        self.let_epilogs_end()
        for node in self.site.nodes:
            self._update(f"NodeName={node.name}", "State=RESUME")
        queue = self.queue()
        for key in self.holds & queue.keys():
            self._scontrol("release", key)
        for key, job in queue.items():
            if job[0] == "SUSPENDED":
                self._scontrol("resume", key)

    # Invariants

    def settle(self) -> None:
        """Wait until all jobs have ended, or none has changed for a while."""
        give_up_s = quiet_s = time.monotonic()
        before: object = None
        while (queue := self.queue()) and time.monotonic() - quiet_s < QUIET_S:
            self.cancel_what_slurmctld_lost()
            now = sorted((key, job[0]) for key, job in queue.items())
            if now != before or any(job[0] != "PENDING" for job in queue.values()):
                before, quiet_s = now, time.monotonic()
            if time.monotonic() - give_up_s > SETTLES_WITHIN_S:
                self.find("the cluster does not come to rest")
                return
            time.sleep(0.5)

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

    def look_at_the_end(self) -> None:
        """Stop the controller; report node lists that it left, and jobs that start only now."""
        refused = [key for key, _ in self.controller.events("list-refused")]
        if refused:
            self.find(f"jobs {', '.join(refused)} were held for a list of ours")
        self.controller.stop()
        waited = self.queue()
        for key, (state, _, _, node_list) in waited.items():
            if state == "PENDING" and node_list.strip():
                self.find(f"job {key} is left with {node_list}")
        until_s = time.monotonic() + BY_ITSELF_S
        while waited and time.monotonic() < until_s:
            time.sleep(0.5)
            queue = self.queue()
            for key, (_, reason, priority, _) in waited.items():
                # Slurm itself makes a requeued job wait for a while.
                waits_for_time = "BeginTime" in reason
                if not waits_for_time and (key not in queue or queue[key][0] != "PENDING"):
                    words = f"{self.asks.get(key.partition('_')[0])}; {reason}, {priority}"
                    self.find(f"job {key} waited for no controller to run ({words})")
                    return
        for key, (_, reason, priority, _) in waited.items():
            if priority.strip() == "0" and "BadConstraints" in reason and key not in self.edited:
                self._compare_hold(key)

    def _compare_hold(self, key: str) -> None:
        """Report a held job unless Slurm alone also holds the same request."""
        wanted = self.asks.get(key.partition("_")[0])
        try:
            again = self._sbatch(wanted) if wanted else ""
        except AssertionError:
            return
        until_s = time.monotonic() + BY_ITSELF_S
        while again and time.monotonic() < until_s:
            job = next((j for k, j in self.queue().items() if k.startswith(again)), None)
            if job is None or job[0] != "PENDING":
                self.find(f"job {key} is held, and {again}, which asks for the same, starts")
                return
            if job[2].strip() == "0":
                return
            time.sleep(0.5)

    def look_at_preemptions(self) -> None:
        last: dict[tuple[str, str], float] = {}
        with closing(Ledger(newest_ledger(self.controller.state_dir))) as ledger:
            query = "SELECT key, for_job, at_s FROM preemptions ORDER BY at_s"
            for key, preemptor, at_s in ledger._database.execute(query).fetchall():
                self.counts["preemptions"] += 1
                before_s = last.get((key, preemptor))
                last[key, preemptor] = at_s
                if before_s is None or any(before_s - 1 < c < at_s + 1 for c in self.changed_s):
                    continue
                runs = ledger.runs.of(preemptor)
                if not any(before_s - 1 <= run.start_s <= at_s + 1 for run in runs):
                    self.find(f"job {key} was requeued twice for {preemptor}, which did not start")
            rows = ledger._database.execute("SELECT kind, job_id FROM events").fetchall()
            for kind, key in rows:
                if key.partition("_")[0] in self.themselves and kind in ("preempted", "requeued"):
                    self.counts[f"{kind}, may requeue itself"] += 1
            count = "SELECT COUNT(*) FROM runs"
            self.counts["starts"] += ledger._database.execute(count).fetchone()[0]

    def look_at_ids(self) -> None:
        """Report jobs that the ledger takes for earlier ones with the same id."""
        with closing(Ledger(newest_ledger(self.controller.state_dir))) as ledger:
            query = "SELECT key, submitted_s, IFNULL(ended_s, 1e12) FROM jobs"
            for key, submit_s, ended_s in ledger._database.execute(query).fetchall():
                since_s = self.submitted_s.get(key.partition("_")[0], 0.0)
                if submit_s < since_s < ended_s:
                    self.find(f"job {key} is known as one submitted at {submit_s:.0f}")

    def told(self) -> str:
        """Return the errors found, with the site and the log of events."""
        about = [f"site {self.site.seed}", told(self.site), *self.course]
        return "\n".join([*self.found, *about])


HAPPENINGS = (
    *(Round.submit,) * 10,
    *(Round.submit_several,) * 2,
    *(Round.drain, Round.resume, Round.resume, Round.hold, Round.cancel),
    *(Round.throttle, Round.exclude, Round.widen, Round.top, Round.suspend, Round.requeue_and_hold),
    *(Round.submit_together, Round.forget, Round.lose_state, Round.hang),
)


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
    basic = site.write == "pinned" and random.random() < 0.3
    conf.append(f"PriorityType=priority/{'basic' if basic else 'multifactor'}")
    if site.write == "site-factor":
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


@contextmanager
def _at_work(seed: int) -> Iterator[Round]:
    drawn = site(seed)
    settings: dict[str, dict[str, object]] = {
        "policy": {"name": drawn.policy, "thresholds_gpu_s": [8, 40]},
        "manage": {"partitions": list(drawn.managed)},
        "priority": {"write": drawn.write},
        "preemption": {
            "signal": drawn.signal,
            "grace_s": 2 if drawn.signal else 0,
            "max_grace_s": 5,
            "min_run_s": 1,
            "start_bound_s": START_BOUND_S,
            "retry_after_s": 2,
        },
        "controller": {"interval_s": 0.5},
    }
    with short_folder() as folder, started_cluster(folder, *options_of(drawn, folder)) as cluster:
        controller = RealController(cluster, folder, settings).start()
        one = Round(drawn, Random(f"round {seed}"), cluster, controller, folder / HANGING)
        try:
            yield one
        finally:
            one.let_epilogs_end()
            if controller.process is not None:
                controller.stop()


def play(seed: int) -> Round:
    """Play one round of about a minute on the site of a seed."""
    with _at_work(seed) as one:
        if one.random.random() < FULL:
            one.fill()
        for _ in range(one.random.randint(*EVENTS)):
            one.random.choice(HAPPENINGS)(one)
            time.sleep(one.random.choice((0.1, 0.3, 1.0, 3.0)))
        one.let_all_run()
        one.settle()
        one.look_at_the_end()
        one.look_at_preemptions()
        one.look_at_ids()
        return one
