"""What the controller publishes each cycle: the one file that ``status`` and ``explain`` read.

It is written whole and renamed into place, so a reader sees one cycle or the next, never half of
one. The schema is part of the interface: fields are added, not changed.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from slurm_tiresias import json_codec
from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.errors import NotRunningError, RefusedError

SCHEMA = 1
FILE_NAME = "state.json"
VIEW_NAME = "view.sock"
"""Where those ask who may not read the file (``privacy.py``)."""

ANSWER_S = 10.0
"""How long they wait for the whole of the answer's next part."""

STALE_AFTER_INTERVALS = 3
STALE_GRACE_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PublishedTier:
    """One tier: jobs whose attained service lies in [``from_gpu_s``, ``to_gpu_s``)."""

    tier: int
    from_gpu_s: float
    to_gpu_s: float | None
    running_jobs: int
    running_gpus: int
    pending_jobs: int
    pending_gpus: int


@dataclass(frozen=True, slots=True)
class PublishedGpus:
    """GPUs of the nodes of the managed partitions. ``down`` ones are on unavailable nodes."""

    total: int
    managed: int
    others: int
    idle: int
    down: int


@dataclass(frozen=True, slots=True)
class Blocker:
    """A running job that holds what another needs, and why it may not be preempted for it.

    ``until_s`` is when that protection runs out, where it does by itself.
    """

    job_id: str
    guard: str
    until_s: float | None


ENFORCE = "enforce"
STOPPED = "stopped"
"""The mode that a controller publishes when it ends."""


@dataclass(slots=True)
class PublishedJob:
    """One job in one cycle. ``action`` and ``reason`` are codes of ``model.Action`` and ``Reason``.

    Name, user, account and partition are as Slurm gave them: hostile until made printable.
    It is never changed, but each of very many jobs gets a new one in every cycle, and a frozen one
    takes four times as long to make.
    """

    job_id: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    slurm_state: str
    slurm_reason: str
    managed: bool
    tier: int | None
    rank: int | None
    gpus: int
    attained_gpu_s: float
    attained_since_promotion_gpu_s: float
    waited_s: float
    running_since_s: float | None
    submitted_s: float
    first_started_s: float | None
    restarts: int
    preemptions: int
    preempted_by: str
    preempted_at_s: float | None
    promotions: int
    nodes: str
    style: str
    action: str
    reason: str
    detail: str
    start_on: str
    victims: tuple[str, ...]
    preempted_for: str
    blockers: tuple[Blocker, ...]
    placement: str = ""
    """How it is placed whenever it starts, and ``placement_because`` by which rule and number."""
    placement_because: str = ""
    signal: str = ""
    """What asks it to save its state before it is preempted, without SIG, and how long before."""
    grace_s: float = 0.0
    inherited_gpu_s: float = 0.0
    """What counts for its tier beyond what it attained since its last promotion."""
    would: str = ""
    """What the controller would do with it, in words, where it does not act and Slurm does
    something else. ``action``, ``reason`` and what goes with them are then not carried out."""
    slurm_place: int | None = None
    """Its place, from 0, by Slurm's own priority among the jobs that wait in its partition; None
    where it does not wait, or is held."""
    left_to_slurm: str = ""
    """Why no nodes are named for it when it starts, in words; "" where they may be."""
    begins_s: float | None = None
    """Before this time Slurm does not start it (``--begin``)."""


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """Something that happened to a job: demoted, promoted, preempted, requeued, node-failed,
    repaired, gave-up, list-refused, signal-refused, failed (Slurm refused a write) and so on.

    Or, with an empty ``job_id``, to the controller: paused, resumed, released.
    """

    at_s: float
    kind: str
    job_id: str
    other: str
    text: str


@dataclass(slots=True)
class PublishedHold:
    """What a running job holds of one node. ``tier`` is None for a job that is not managed.

    Where jobs are private, one with an empty ``job_id`` and no tier is all that others' jobs hold.
    """

    job_id: str
    gpus: int
    tier: int | None


@dataclass(slots=True)
class PublishedNode:
    """A node of the managed partitions that has GPUs; ``state`` in Slurm's words."""

    name: str
    gpus: int
    available: bool
    state: str
    held: tuple[PublishedHold, ...]


@dataclass(frozen=True, slots=True)
class PublishedStandby:
    """A controller that waits to take over. ``wanted``: slurmctld acts on its host."""

    host: str
    pid: int
    wanted: bool


@dataclass(frozen=True, slots=True)
class PublishedState:
    """Everything the controller says about itself and the cluster after one cycle.

    ``mode`` is enforce, shadow, paused, or stopped after a clean end. ``failures`` counts the
    cycles that failed since the last good one and ``error`` says why; ``at_s`` is the time of
    the last good cycle. ``failed_cycles`` counts all that failed since ``started_s``, by
    ``TiresiasError.kind``; ``next_try_s`` is None unless the last cycle failed. ``term`` is 0 where
    no other controller may stand by.
    """

    schema: int
    cluster: str
    slurm_version: str
    version: str
    driver: str
    pid: int
    mode: str
    policy: str
    order: str
    interval_s: float
    started_s: float
    cycle: int
    at_s: float
    took_s: float
    failures: int
    error: str
    gpus: PublishedGpus
    tiers: tuple[PublishedTier, ...]
    jobs: tuple[PublishedJob, ...]
    events: tuple[PublishedEvent, ...]
    only_of: str = ""
    """Whose jobs these are, where jobs are private and it does not show all."""
    host: str = ""
    failed_cycles: Mapping[str, int] = field(default_factory=dict)
    last_failure_s: float | None = None
    next_try_s: float | None = None
    warning: str = ""
    """What is wrong though cycles go well."""
    term: int = 0
    standbys: tuple[PublishedStandby, ...] = ()
    output_appended: bool | None = None
    """Whether jobs that start again add to their output files by default; None: not known."""
    charge: str = "job"
    """``policy.charge``."""
    nodes: tuple[PublishedNode, ...] = ()
    driver_because: str = ""
    """Why Slurm is not reached through pyslurm, where that was tried."""

    @property
    def acts(self) -> bool:
        """Whether the controller carries out what it decides: not in shadow mode, for example."""
        return self.mode == ENFORCE

    def is_stale(self, now_s: float) -> bool:
        """Whether the last good cycle is so long ago that the controller cannot be well."""
        longest_s = STALE_AFTER_INTERVALS * self.interval_s + STALE_GRACE_S
        return self.mode != STOPPED and now_s - self.at_s > longest_s


def write(state: PublishedState, state_dir: Path, *, private: bool = False) -> None:
    """Put the state in place of the one before, readable by all users or by the owner only."""
    text = json_codec.dumps(state)
    write_atomically(state_dir / FILE_NAME, text, 0o600 if private else 0o644)


def read(state_dir: Path, answer_s: float | None = None) -> PublishedState:
    """Read what the controller published last, or as much of it as this user may see.

    ``answer_s``: how long to wait for a controller that has to be asked, instead of ``ANSWER_S``.
    ``NotRunningError`` where there is nothing, ``RefusedError`` where the controller refuses.
    """
    path = state_dir / FILE_NAME
    try:
        text = _text_in(path, answer_s)
    except OSError as error:
        raise NotRunningError(
            f"No controller has published anything in {state_dir} ({error.strerror or error})",
            "Start it with: tiresias-slurm controller --config FILE, or name its config here",
        ) from error
    try:
        return _state(checked_answer(text, SCHEMA))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotRunningError(
            f"{path} is not a state that this version can read, or it is damaged",
            "A controller writes it anew each cycle; see that one runs, and of this version",
        ) from error


def _text_in(path: Path, answer_s: float | None) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError:
        return answer_of(path.with_name(VIEW_NAME), answer_s=answer_s)


def answer_of(path: Path, question: bytes = b"", answer_s: float | None = None) -> bytes:
    """What a controller answers this user at a socket of its own (``answers.py``)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S if answer_s is None else answer_s)
        connection.connect(str(path))
        # The controller may have refused, and hung up, already.
        with suppress(BrokenPipeError):
            connection.sendall(question)
        with connection.makefile("rb") as answer:
            return answer.read()


def checked_answer(text: bytes, schema: int) -> Mapping[str, Any]:
    """What a controller has answered, from its JSON.

    ``RefusedError`` where it refuses; ``ValueError`` and the like where it is no such answer.
    """
    raw: Mapping[str, Any] = json_codec.loads(text)
    if refused := raw.get("refused"):
        what, remedy = refused
        raise RefusedError(str(what), str(remedy))
    if raw["schema"] != schema:
        raise ValueError("another schema")
    return raw


def _state(raw: Mapping[str, Any]) -> PublishedState:
    blockers = (all_known(Blocker, job["blockers"]) for job in raw["jobs"])
    jobs = [job | {"blockers": who} for job, who in zip(raw["jobs"], blockers, strict=True)]
    held = (all_known(PublishedHold, node["held"]) for node in raw.get("nodes", []))
    nodes = [node | {"held": what} for node, what in zip(raw.get("nodes", []), held, strict=True)]
    nested = {
        "gpus": all_known(PublishedGpus, [raw["gpus"]])[0],
        "tiers": all_known(PublishedTier, raw["tiers"]),
        "events": all_known(PublishedEvent, raw["events"]),
        "jobs": all_known(PublishedJob, jobs),
        "standbys": all_known(PublishedStandby, raw.get("standbys", [])),
        "nodes": all_known(PublishedNode, nodes),
    }
    return all_known(PublishedState, [{**raw, **nested}])[0]


def all_known(kind: type[T], raw: Iterable[Mapping[str, Any]]) -> tuple[T, ...]:
    """As this version knows them: what a later one has added is left out."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]

    def build(one: Mapping[str, Any]) -> T:
        named = ((name, value) for name, value in one.items() if name in known)
        return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in named})

    return tuple(build(one) for one in raw)
