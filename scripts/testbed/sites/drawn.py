"""Random sites and job requests, drawn from a seed, for the in-memory Slurm and a real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

from scripts.testbed.in_memory import InMemorySlurm, Settings, Submission
from scripts.testbed.in_memory.extras import NONE, Extras
from scripts.testbed.lifecycle.world import Setup
from slurm_tiresias.model import ANY_TYPE, Amount, Node, Request
from slurm_tiresias.settings.idle_gpus import LEAVE, RANK_LAST
from slurm_tiresias.slurm.protocol import Partition

CPUS, MEMORY_MB = 16, 8000
TYPES = ("a100", "v100")
RACKS = ("rack1", "rack2")
USERS = ("ann", "bob")
REAL_SPEED = 3.0
"""How much faster everything happens on real clusters than in memory. The times here are those in
memory."""


@dataclass(frozen=True, slots=True)
class SiteNode:
    """One node: its GPUs (typed or untyped), location and other resources."""

    name: str
    gpus: int
    gpu_type: str
    rack: str
    switch: str
    drives: int
    disk: bool
    """Whether its local disk is large enough for jobs that request one (``--tmp``)."""


@dataclass(frozen=True, slots=True)
class Site:
    """The setup of a cluster and its controller."""

    seed: int
    nodes: tuple[SiteNode, ...]
    partitions: tuple[Partition, ...]
    setup: Setup
    """Of the controller. The GPUs of real clusters are not sampled."""
    backfill: bool = False
    epilog_s: float = 1.0
    licenses: int = 0
    """The number of ``solver`` licences."""
    most_jobs_of_user: int | None = None
    """How many jobs of a user may run at once (MaxJobsPU). Not applied to real clusters."""
    blocks: tuple[int, ...] = ()
    """The sizes of blocks, with topology/block; not on real clusters."""

    @property
    def gpus(self) -> int:
        """The GPUs of the largest node."""
        return max(node.gpus for node in self.nodes)

    def in_memory(self) -> InMemorySlurm:
        """Return the site's Slurm, in memory."""
        nodes = (
            Node(
                one.name,
                Amount({one.gpu_type: one.gpus}, CPUS, MEMORY_MB),
                features=frozenset({one.rack}),
                switch="" if self.blocks else one.switch,
                blocks=tuple((size, str(at // size)) for size in self.blocks),
            )
            for at, one in enumerate(self.nodes)
        )
        settings = Settings(
            epilog_s=self.epilog_s,
            backfill=self.backfill,
            requeue_delay_s=15.0,
            licenses={"solver": self.licenses},
            most_jobs_of_user=self.most_jobs_of_user,
        )
        drives = {one.name: one.drives for one in self.nodes}
        return InMemorySlurm(nodes, self.partitions, settings, drives=drives)

    def names(self, holds: Callable[[SiteNode], bool]) -> frozenset[str]:
        return frozenset(one.name for one in self.nodes if holds(one))


def site(seed: int) -> Site:
    """Draw the site of a seed."""
    random = Random(f"site {seed}")
    count, types = random.randint(2, 6), random.choice(((ANY_TYPE,), TYPES, TYPES[:1]))
    nodes = tuple(
        SiteNode(
            name=f"n{number}",
            gpus=random.choice((2, 4, 4)),
            gpu_type=random.choice(types),
            rack=random.choice(RACKS),
            switch=f"leaf{(number - 1) // 2}",
            drives=random.choice((0, 1, 1)),
            disk=random.random() < 0.6,
        )
        for number in range(1, count + 1)
    )
    names = [one.name for one in nodes]
    partitions = [Partition("gpu", frozenset(names), up=True)]
    for name in ("small", "other")[: random.randint(0, 2)]:
        some = random.sample(names, random.randint(1, count))
        partitions.append(
            Partition(
                name,
                frozenset(some),
                up=True,
                priority_tier=random.choice((1, 1, 1, 10)),
                most_nodes=random.choice((None, None, 1)),
            )
        )
    managed = ["gpu", *(one.name for one in partitions[1:] if random.random() < 0.6)]
    return Site(
        seed,
        nodes,
        tuple(partitions),
        Setup(
            managed=tuple(managed),
            write=random.choice(("pinned", "pinned", "site-factor")),
            policy=random.choice(("2d-las", "2d-las", "2d-gittins")),
            estimates=random.choice((("reports",), ("history",), ("reports", "history"))),
            signal=random.choice(("", "USR1")),
            idle=random.choice(("", RANK_LAST, LEAVE)),
        ),
        backfill=random.random() < 0.5,
        epilog_s=random.choice((0.6, 3.0, 15.0)),
        licenses=random.choice((0, 0, 1, 2)),
        most_jobs_of_user=random.choice((None, None, None, 2, 3)),
    )


@dataclass(frozen=True, slots=True)
class Ask:
    """A job for either Slurm: sbatch's options, and the same as a ``Submission``."""

    options: tuple[str, ...]
    submission: Submission

    def __str__(self) -> str:
        of = self.submission
        return f"{of.user}: {' '.join(self.options)}, {of.duration_s:g} s"


@dataclass(slots=True)
class _Draft:
    """A request being drawn: sbatch's options with their values, and their meaning."""

    site: Site
    random: Random
    nodes: int
    options: dict[str, str]
    request: Request
    extras: Extras = NONE


def ask(site: Site, random: Random) -> Ask:
    """Draw a random request, each part of which the site can satisfy."""
    while True:
        draft = _shape(site, random)
        changes = random.sample(list(UNDERSTOOD), random.choice((0, 0, 0, 1, 1, 2)))
        name = random.choice(list(BEYOND)) if random.random() < 0.45 else ""
        parts = [*(UNDERSTOOD[change] for change in changes), *([BEYOND[name]] if name else [])]
        if all(part(draft) for part in parts):
            return _asked(draft, name)


def _asked(draft: _Draft, beyond: str) -> Ask:
    site, random, options = draft.site, draft.random, draft.options
    several = len(site.partitions) > 1 and random.random() < 0.2
    partitions = random.sample([one.name for one in site.partitions], 2 if several else 1)
    options["--partition"] = ",".join(partitions)
    # Sometimes hide the option, like one of a later release that the controller cannot see.
    opaque = beyond if random.random() < 0.8 else ""
    array = random.random() < 0.08
    limit = random.choice((None, 1)) if array else None
    begin_in_s = random.choice((None, None, None, None, 30.0))
    time_limit_s = random.choice((None, 600.0))
    requeue = random.random() < 0.9
    if array:
        options["--array"] = f"0-2%{limit}" if limit else "0-2"
    if begin_in_s:
        options["--begin"] = f"now+{begin_in_s / REAL_SPEED:.0f}"
    if time_limit_s:
        options["--time"] = f"{time_limit_s / 60:.0f}"
    if not requeue:
        options["--no-requeue"] = ""
    licensed = site.licenses and random.random() < 0.4
    if licensed:
        options["--licenses"] = "solver"
    submission = Submission(
        replace(draft.request, opaque=opaque),
        user=random.choice(USERS),
        partitions=tuple(partitions),
        duration_s=random.choice((3.0, 9.0, 24.0, 90.0, 360.0)),
        extras=draft.extras,
        requeue=requeue,
        array=(0, 1, 2) if array else (),
        array_limit=limit,
        begin_in_s=begin_in_s,
        time_limit_s=time_limit_s,
        own_priority=random.choice((1, 1, 100)),
        licenses="solver" if licensed else "",
        requeues_itself_in_s=random.choice((None, None, None, 0.0, 6.0)),
    )
    written = (f"{name}={value}" if value else name for name, value in options.items())
    return Ask(tuple(written), submission)


def _shape(site: Site, random: Random) -> _Draft:
    nodes = random.choice([n for n in (1, 1, 1, 2, 2, 3) if n <= len(site.nodes)])
    gpus = random.randint(1, site.gpus)
    if nodes == 1 and random.random() < 0.3:
        options = {"--gpus": str(gpus), "--ntasks": str(gpus), "--mem-per-cpu": "10"}
        request = Request(Amount({ANY_TYPE: 1}, 1, 10), chunks=gpus, max_nodes=gpus)
        return _Draft(site, random, nodes, options, request)
    options = {"--nodes": str(nodes), "--gres": f"gpu:{gpus}", "--mem": "100"}
    request = Request(
        Amount({ANY_TYPE: gpus}, 1, 100),
        chunks=nodes,
        max_chunks_per_node=1,
        min_nodes=nodes,
        max_nodes=nodes,
    )
    return _Draft(site, random, nodes, options, request)


# Options that the controller understands. Each function adds one to the draft, and returns False
# if this site cannot satisfy it.


def _features(draft: _Draft) -> bool:
    words = draft.random.choice(("rack1", "rack2", "rack1|rack2"))
    draft.options["--constraint"] = words
    draft.request = replace(draft.request, features=words)
    return any(one.rack in words for one in draft.site.nodes)


def _exclude(draft: _Draft) -> bool:
    one = draft.random.choice(draft.site.nodes).name
    draft.options["--exclude"] = one
    draft.request = replace(draft.request, excluded_nodes=frozenset({one}))
    return True


def _whole_nodes(draft: _Draft) -> bool:
    draft.options["--exclusive"] = ""
    draft.request = replace(draft.request, exclusive=True)
    return True


def _segment(draft: _Draft) -> bool:
    size = draft.random.choice((1, draft.nodes))
    draft.options["--segment"] = str(size)
    draft.request = replace(draft.request, segment=size)
    return bool(draft.site.blocks) and draft.request.max_chunks_per_node == 1


def _one_switch(draft: _Draft) -> bool:
    draft.options["--switches"] = "1"
    draft.request = replace(draft.request, most_switches=1)
    leaves = Counter(one.switch for one in draft.site.nodes)
    return not draft.site.blocks and max(leaves.values()) >= draft.nodes


UNDERSTOOD: Mapping[str, Callable[[_Draft], bool]] = {
    "features": _features,
    "exclude": _exclude,
    "whole nodes": _whole_nodes,
    "segment": _segment,
    "one switch": _one_switch,
}


# Options that the controller does not understand (opaque requests).


def _drives(draft: _Draft) -> bool:
    gres = draft.options.get("--gres")
    draft.options["--gres"] = f"{gres},nvme:1" if gres else "nvme:1"
    draft.extras = Extras(drives=1)
    return len(draft.site.names(lambda one: one.drives > 0)) >= draft.nodes


def _disk(draft: _Draft) -> bool:
    able = draft.site.names(lambda one: one.disk)
    draft.options["--tmp"] = "50"
    draft.extras = Extras(nodes=able)
    return len(able) >= draft.nodes


def _adjacent(draft: _Draft) -> bool:
    draft.options["--contiguous"] = ""
    names = [one.name for one in draft.site.nodes]
    return _of_one_group(draft, (set(names[at : at + draft.nodes]) for at in range(len(names))))


def _one_rack(draft: _Draft) -> bool:
    draft.options["--constraint"] = "[rack1|rack2]"
    draft.request = replace(draft.request, features="")
    racks: dict[str, set[str]] = {}
    for one in draft.site.nodes:
        racks.setdefault(one.rack, set()).add(one.name)
    return len(racks) == 2 and _of_one_group(draft, racks.values())


def _of_one_group(draft: _Draft, groups: Iterable[set[str]]) -> bool:
    enough = tuple(frozenset(group) for group in groups if len(group) >= draft.nodes)
    draft.extras = Extras(groups=enough)
    return bool(enough)


def _no_other_user(draft: _Draft) -> bool:
    draft.options["--exclusive"] = "user"
    draft.request = replace(draft.request, exclusive=False)
    draft.extras = Extras(user_alone=True)
    return True


BEYOND: Mapping[str, Callable[[_Draft], bool]] = {
    "--gres of another kind than gpu": _drives,
    "--tmp": _disk,
    "--contiguous": _adjacent,
    "--constraint with counts or brackets": _one_rack,
    "--exclusive=user": _no_other_user,
}
