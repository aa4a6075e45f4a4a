"""Turn writes into lines for one scontrol, and match its errors back to the writes.

scontrol reads commands from standard input and continues after a failure. Its errors on standard
error mostly do not name the line. So each write is followed by a marker, a word that scontrol does
not know: ``invalid keyword: WORD`` then ends the errors of that write, and the last marker proves
that every line was read.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.protocol import (
    Requeue,
    Restart,
    SetNode,
    Unpin,
    Update,
    Write,
    WriteFailure,
)

LOWEST_PRIORITY, HIGHEST_PRIORITY = 1, 4294967293
"""0 would hold the job; the two numbers above the highest mean "no value" and "infinite"."""

_KEY = re.compile(r"\d+(?:\+\d+|_\d+|_\[[\d,-]+\])?", re.ASCII)
_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_DRAIN_REASON = re.compile(r"[\w .,:%-]{0,200}", re.ASCII)
_NODE_LIST = re.compile(r"[\w.,\[\]-]*", re.ASCII)
_NO_COMPLAINT = re.compile(r"(?:\S+: )?No error")
"""The answer for an array also lists the tasks that succeeded: ``73_1,5-9: No error``."""


def new_marker() -> str:
    """Return a random word, which scontrol cannot know."""
    return f"after-{secrets.token_hex(8)}-"


def script(writes: Sequence[Write], marker: str, ahead_s: float = 0.0) -> str:
    """Return the input for one scontrol: every write in order, each followed by its marker."""
    return "".join(
        f"{line}\n"
        for n, write in enumerate(writes)
        for line in (*lines(write, ahead_s), f"{marker}{n}")
    )


def lines(write: Write, ahead_s: float = 0.0) -> Sequence[str]:
    """Return scontrol's lines for one write; raise ``ValueError`` if the write is invalid.

    ``ahead_s`` is how far slurmctld's clock is ahead of this host's, which scontrol uses for times.

    A write is one line, except for a node list on several tasks of an array, which takes one line
    per task: scontrol refuses ``123_[4-9]`` there with "Invalid job ID". A requeue that first
    allows requeues takes two.
    """
    if isinstance(write, SetNode):
        if not _NODE.fullmatch(write.key) or not _DRAIN_REASON.fullmatch(write.drain):
            raise ValueError(f"node {write.key!r} cannot be set")
        if write.weight is not None:
            return [f"update NodeName={write.key} Weight={write.weight:d}"]
        state = f'DRAIN Reason="{write.drain}"' if write.drain else "RESUME"
        return [f"update NodeName={write.key} State={state}"]
    if not _KEY.fullmatch(write.key):
        raise ValueError(f"{write.key!r} is not a job id")
    match write:
        case Requeue(key, allow):
            allowing = [f"update JobId={key} Requeue=1"] if allow else []
            return [*allowing, f"requeue incomplete {key}"]
        case Restart(key):
            return [f"requeue {key}"]
        case Unpin(key):
            return [f"release {key}"]
        case Update():
            singly = write.node_list is not None and write.key.endswith("]")
            keys = notation.node_names(write.key) if singly else [write.key]
            changes = " ".join(_changes(write, ahead_s))
            return [f"update JobId={key} {changes}" for key in keys] if changes else []


def answers(
    writes: Sequence[Write], complaints: str, marker: str
) -> tuple[int, tuple[WriteFailure, ...]]:
    """Return how many of the writes scontrol has processed, and those that Slurm refused."""
    said: list[str] = []
    failed: list[WriteFailure] = []
    done = 0
    for spoken in complaints.splitlines():
        if spoken == f"invalid keyword: {marker}{done}" and done < len(writes):
            if said:
                failed.append(WriteFailure(writes[done], "; ".join(said)))
            said = []
            done += 1
        elif spoken.strip() and not _NO_COMPLAINT.fullmatch(spoken):
            said.append(spoken.strip())
    return done, tuple(failed)


def _changes(update: Update, ahead_s: float) -> list[str]:
    changes: list[str] = []
    if update == Update(update.key):
        raise ValueError(f"nothing to change on job {update.key}")
    if update.priority is not None:
        if not LOWEST_PRIORITY <= update.priority <= HIGHEST_PRIORITY:
            raise ValueError(f"no job can have priority {update.priority}")
        changes.append(f"Priority={update.priority}")
    if update.site_factor is not None:
        changes.append(f"SiteFactor={update.site_factor}")
    # scontrol cannot send a time in this host's past, so if this host is ahead of slurmctld there
    # is no way to say "soon".
    if update.start_in_s is not None and ahead_s >= 0:
        changes.append(f"StartTime=now+{max(update.start_in_s, 0) + round(ahead_s)}")
    if update.node_list is not None:
        if not _NODE_LIST.fullmatch(update.node_list):
            raise notation.unreadable("a node list", update.node_list)
        # On a running job ReqNodeList would shrink the job and kill its steps. Slurm refuses
        # ResetAccrueTime, and with it the whole request, for any job that is not pending, before
        # it looks at the nodes; so a job that has started meanwhile is left unchanged.
        changes += [f"ReqNodeList={update.node_list}", "ResetAccrueTime"]
    if update.excluded is not None:
        if not _NODE_LIST.fullmatch(update.excluded):
            raise notation.unreadable("a node list", update.excluded)
        changes.append(f"ExcNodeList={update.excluded}")
    return changes
