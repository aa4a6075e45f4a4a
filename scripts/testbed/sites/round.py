"""One test round on a random site: what happens there, and what must hold in the end.

The situations are drawn here, whichever cluster they happen on. ``in_memory.py`` and
``on_slurm.py`` carry them out, and add what is possible or visible only there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, NamedTuple

from scripts.testbed.sites.drawn import Ask, Site, ask

PENDING, RUNNING, SUSPENDED = "PENDING", "RUNNING", "SUSPENDED"
NODE_STATES = DRAIN, RESUME, FAIL = "drain", "resume", "fail"
HOLDS = ("hold", "requeuehold")


class Shown(NamedTuple):
    """A job that has not ended, as Slurm shows it."""

    state: str
    reason: str
    priority: int
    node_list: str
    """The nodes that it must run on."""


class RefusedError(Exception):
    """Slurm has refused a submission or a change."""


@dataclass(slots=True)
class Round(ABC):
    """A running site, with its log and the errors found."""

    site: Site
    random: Random
    course: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    asks: dict[str, Ask] = field(default_factory=dict)
    """By job or array id, like the next but one."""
    user_holds: set[str] = field(default_factory=set)
    submitted_s: dict[str, float] = field(default_factory=dict)
    changed_s: list[float] = field(default_factory=list)
    """Times at which the site or a job's request was changed."""

    events: ClassVar[tuple[int, int]]
    """The least and most events in a round."""
    happenings: ClassVar[Sequence[str]]
    """The events, each as often as is likely."""
    pauses_s: ClassVar[Sequence[float]]
    """The times between two events."""
    look_every_s: ClassVar[float]
    quiet_s: ClassVar[float]
    """A site at which nothing has happened for so long is at rest."""
    settles_within_s: ClassVar[float]
    early_s: ClassVar[float]
    late_s: ClassVar[float]
    """By how much a start or a change may precede or follow the preemptions that it explains."""
    waits_for_slurm: ClassVar[str] = "-"
    """The reason of jobs that Slurm itself keeps waiting for a while."""

    job_changes: ClassVar[Mapping[str, Sequence[str]]] = {
        "hold": ("hold", PENDING),
        "cancel": ("cancel",),
        "suspend": ("suspend", RUNNING),
        "resume-job": ("resume", SUSPENDED),
    }
    """By event: what ``change_job`` is told, and the states of jobs to one of which it happens."""

    # The cluster

    @property
    @abstractmethod
    def now_s(self) -> float:
        """slurmctld's clock."""

    @abstractmethod
    def queue(self) -> Mapping[str, Shown]:
        """Return every job that has not ended."""

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Let some time pass."""

    @abstractmethod
    def send(self, wanted: Ask) -> str:
        """Submit a job; return its id, or that of its array."""

    @abstractmethod
    def set_node(self, name: str, state: str) -> None:
        """Drain a node, let it fail, or resume it."""

    @abstractmethod
    def set_epilogs(self, name: str, hang: bool) -> None:
        """Let no epilog on the node end, or let them end again."""

    @abstractmethod
    def change_job(self, what: str, key: str) -> None:
        """Do this to a job: "hold", "release", "cancel", "suspend", "resume"."""

    @abstractmethod
    def kill_slurmctld(self, lose_state: bool) -> None:
        """Kill slurmctld and start it again, from what it has saved or from nothing."""

    @abstractmethod
    def stop_controller(self) -> None:
        """Let the controller take its node lists back, and stop it."""

    @abstractmethod
    def leave_alone(self) -> None:
        """Let Slurm start by itself all that it can."""

    @abstractmethod
    def preemptions(self) -> Iterable[tuple[str, str, float]]:
        """Return victim, preemptor and time of each preemption in the ledger, in order."""

    @abstractmethod
    def starts_s(self, key: str) -> Iterable[float]:
        """Return when each run of a job began."""

    # The log

    def note(self, what: str) -> None:
        self.course.append(f"{self.now_s:.1f}: {what}")
        self.counts[what.split()[0]] += 1

    def find(self, what: str) -> None:
        self.found.append(f"{self.now_s:.1f}: {what}")

    def told(self) -> str:
        """Return the errors found, with the site and the log of events."""
        return "\n".join([*self.found, str(self.site), *self.course])

    # Events

    def play(self) -> None:
        """Let events happen, and then look at what must hold."""
        for _ in range(self.random.randint(*self.events)):
            self.happen(self.random.choice(self.happenings))
            self.pass_time(self.random.choice(self.pauses_s))
        self.let_all_run()
        self.settle()
        self.look_at_the_end()
        self.look_at_preemptions()

    def submit(self) -> None:
        self.submit_one(ask(self.site, self.random))

    def submit_several(self) -> None:
        """Submit several jobs with the same request."""
        wanted = ask(self.site, self.random)
        for _ in range(self.random.randint(2, 5)):
            self.submit_one(wanted)

    def submit_one(self, wanted: Ask) -> str:
        """Submit a job; return its id, or "" if Slurm refuses it."""
        now_s = self.now_s
        try:
            key = self.send(wanted)
        except RefusedError as error:
            self.note(f"refused {wanted}: {error}")
            return ""
        self.counts["reused ids"] += key in self.asks
        self.user_holds.discard(key)
        self.asks[key], self.submitted_s[key] = wanted, now_s
        self.note(f"submit {key} {wanted}")
        return key

    def happen(self, what: str) -> None:
        """Let an event happen: a change of a node, one of a job, or what the method does."""
        if what in NODE_STATES:
            self._change_node(what)
        elif what in self.job_changes:
            self._change_one_job(what)
        else:
            getattr(self, what)()

    def _change_one_job(self, what: str) -> None:
        change, *states = self.job_changes[what]
        if key := self.one(*states):
            self.note(f"{what} {key}")
            self.change_job(change, key)
            if change in HOLDS:
                self.user_holds.add(key)
                self.changed_s.append(self.now_s)

    def _change_node(self, state: str) -> None:
        name = self.random.choice(self.site.nodes).name
        self.note(f"{state} {name}")
        self.set_node(name, state)
        self.changed_s.append(self.now_s)

    def hang(self) -> None:
        """Let no epilog on a node end."""
        name = self.random.choice(self.site.nodes).name
        self.note(f"hang {name}")
        self.set_epilogs(name, hang=True)
        self.changed_s.append(self.now_s)

    def forget(self) -> None:
        """Kill slurmctld, which gives the ids of jobs that it has not saved out again."""
        self.restart("forget", lose_state=False)

    def lose_state(self) -> None:
        """Kill slurmctld and lose its state: ids begin again, and slurmdbd keeps its rows."""
        self.restart("lose-state", lose_state=True)

    def restart(self, what: str, *, lose_state: bool) -> None:
        self.note(what)
        self.changed_s.append(self.now_s)
        self.kill_slurmctld(lose_state)
        self.user_holds &= self.queue().keys()
        self.changed_s.append(self.now_s)

    def one(self, *states: str) -> str:
        """Draw a job, in one of these states if any are named; "" if there is none."""
        found = [k for k, shown in self.queue().items() if not states or shown.state in states]
        return self.random.choice(found) if found else ""

    def let_all_run(self) -> None:
        """Resume all nodes and suspended jobs, and release the jobs that users hold."""
        for node in self.site.nodes:
            self.set_epilogs(node.name, hang=False)
            self.set_node(node.name, RESUME)
        for key in self.user_holds & self.queue().keys():
            self.change_job("release", key)
        for key, shown in self.queue().items():
            if shown.state == SUSPENDED:
                self.change_job("resume", key)
        self.changed_s.append(self.now_s)

    # What must hold

    def settle(self) -> None:
        """Wait until all jobs have ended, or none has changed for a while."""
        began_s = quiet_since_s = self.now_s
        before: object = None
        while (queue := self.queue()) and self.now_s - quiet_since_s < self.quiet_s:
            now = sorted((key, shown.state) for key, shown in queue.items())
            if now != before or any(shown.state != PENDING for shown in queue.values()):
                before, quiet_since_s = now, self.now_s
            if self.now_s - began_s > self.settles_within_s:
                self.find("the cluster does not come to rest")
                return
            self.pass_time(self.look_every_s)

    def look_at_the_end(self) -> Mapping[str, Shown]:
        """Stop the controller; report node lists that it left, and jobs that start only now.

        Returns the jobs that waited until then.
        """
        self.stop_controller()
        waited = {key: shown for key, shown in self.queue().items() if shown.state == PENDING}
        for key, shown in waited.items():
            if shown.node_list:
                self.find(f"job {key} is left with {shown.node_list}")
        self.leave_alone()
        queue = self.queue()
        for key, shown in waited.items():
            waits = key in queue and queue[key].state == PENDING
            if not waits and self.waits_for_slurm not in shown.reason:
                asked = self.asks.get(key.partition("_")[0])
                why = f"{asked}; {shown.reason}, {shown.priority}"
                self.find(f"job {key} waited for no controller to run ({why})")
        return waited

    def look_at_preemptions(self) -> None:
        """Report victims preempted repeatedly for a preemptor that had not started, although
        neither the site nor a request had changed."""
        last: dict[tuple[str, str], float] = {}
        for key, preemptor, at_s in self.preemptions():
            self.counts["preemptions"] += 1
            before_s = last.get((key, preemptor))
            last[key, preemptor] = at_s
            if before_s is None:
                continue
            explaining = [*self.changed_s, *self.starts_s(preemptor)]
            if not any(before_s - self.early_s <= s <= at_s + self.late_s for s in explaining):
                self.find(
                    f"job {key} was requeued at {before_s:.0f} and {at_s:.0f} for {preemptor}, "
                    "which had not started"
                )
