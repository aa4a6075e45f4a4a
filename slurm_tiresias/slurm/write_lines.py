"""From writes to lines for one scontrol, and from its complaints back to the writes.

scontrol reads commands from its standard input and goes on after one that fails. It reports on
standard error, mostly without saying which line was meant. So after each write it is fed a word
that it does not know: ``invalid keyword: WORD`` then closes what that write had to say, and the
last one proves that every line was read.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.protocol import Requeue, Unpin, Update, Write, WriteFailure

LOWEST_PRIORITY, HIGHEST_PRIORITY = 1, 4294967293
"""0 would hold the job; the two numbers above stand for "no value" and "infinite" in Slurm."""

_KEY = re.compile(r"\d+(?:\+\d+|_\d+|_\[[\d,-]+\])?", re.ASCII)
_NODE_LIST = re.compile(r"[\w.,\[\]-]*", re.ASCII)
_NO_COMPLAINT = re.compile(r"(?:\S+: )?No error")
"""An array's answer lists the tasks that went well too: ``73_1,5-9: No error``."""


def new_marker() -> str:
    """A word that scontrol cannot know."""
    return f"after-{secrets.token_hex(8)}-"


def script(writes: Sequence[Write], marker: str, ahead_s: float = 0.0) -> str:
    """What one scontrol is fed: every write in order, each with its marker after it."""
    return "".join(
        f"{line}\n"
        for n, write in enumerate(writes)
        for line in (*lines(write, ahead_s), f"{marker}{n}")
    )


def lines(write: Write, ahead_s: float = 0.0) -> Sequence[str]:
    """One write as scontrol takes it; ``ValueError`` for what can never be meant.

    slurmctld's clock is ``ahead_s`` ahead of this host's, by which scontrol reads times.

    It is one line, but for a node list on several tasks of an array: scontrol refuses
    ``123_[4-9]`` there with "Invalid job ID", so that takes a line a task.
    """
    if not _KEY.fullmatch(write.key):
        raise ValueError(f"{write.key!r} is no job")
    match write:
        case Requeue(key, allow):
            allowing = [f"update JobId={key} Requeue=1"] if allow else []
            return [*allowing, f"requeue incomplete {key}"]
        case Unpin(key):
            return [f"release {key}"]
        case Update():
            singly = write.node_list is not None and write.key.endswith("]")
            keys = notation.node_names(write.key) if singly else [write.key]
            changes = " ".join(_changes(write, ahead_s))
            return [f"update JobId={key} {changes}" for key in keys] if changes else []


def failures(
    writes: Sequence[Write], complaints: str, marker: str
) -> tuple[WriteFailure, ...] | None:
    """The writes that Slurm complained about; None where it did not get through them all."""
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
    return tuple(failed) if done == len(writes) else None


def _changes(update: Update, ahead_s: float) -> list[str]:
    changes: list[str] = []
    if update == Update(update.key):
        raise ValueError(f"nothing to change on job {update.key}")
    if update.priority is not None:
        if not LOWEST_PRIORITY <= update.priority <= HIGHEST_PRIORITY:
            raise ValueError(f"no job can be given priority {update.priority}")
        changes.append(f"Priority={update.priority}")
    if update.site_factor is not None:
        changes.append(f"SiteFactor={update.site_factor}")
    # scontrol names no time that has passed on this host: one that is ahead cannot say "soon".
    if update.start_in_s is not None and ahead_s >= 0:
        changes.append(f"StartTime=now+{max(update.start_in_s, 0) + round(ahead_s)}")
    if update.node_list is not None:
        if not _NODE_LIST.fullmatch(update.node_list):
            raise notation.unreadable("a node list", update.node_list)
        # On a running job ReqNodeList shrinks it and kills its steps. ResetAccrueTime is refused on
        # any job but a pending one, before the nodes are looked at, and takes the whole request
        # with it; so a job that has started meanwhile stays as it is.
        changes += [f"ReqNodeList={update.node_list}", "ResetAccrueTime"]
    return changes
