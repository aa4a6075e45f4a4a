"""What happened in a period, as JSON for reports."""

from __future__ import annotations

import math
from collections.abc import Mapping

from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.errors import RefusedError
from slurm_tiresias.store.ledger import FIRST_LOOK, Ledger
from slurm_tiresias.store.records import LOST_PARTS

LONGEST_NAME = 100
"""Names are cut to this length in reports: a user may give every job a long one."""


def _of(table: str, *names: str) -> dict[str, str]:
    return {name: f"{table}{name}" for name in names}


_COST_COLUMNS = {
    "cost_source": "c.source",
    **{f"lost_{part}_s": f"c.{part}_s" for part in LOST_PARTS},
    **_of("c.", "answered_s", "lost_all"),
}

PERIOD: Mapping[str, Mapping[str, str]] = {
    "jobs": {
        "job_id": "key",
        **_of("", "user", "account", "partition"),
        "name": f"substr(name, 1, {LONGEST_NAME})",
        **_of("", "submitted_s", "ended_s", "restarts", "preemptions", "time_limit_s"),
    },
    "runs": {
        "job_id": "i.key",
        **_of("i.", "start_s", "end_s", "elapsed_s", "gpus", "confirmed", "idle_gpu_s"),
        **_of("i.", "hung_s", "false_verdicts"),
    },
    "preemptions": {
        "job_id": "p.key",
        **_of("p.", "for_job", "at_s", "signalled_s", "tier", "for_tier"),
        **_of("r.", "gpus", "start_s"),
        "left_s": "r.end_s",
        "for_itself": f"p.cause != '{Cause.FOR_JOB}'",
        "hung": f"p.cause = '{Cause.HUNG}'",
        "false_verdicts": "COALESCE(r.false_verdicts, 0)",
        "again_s": "(SELECT MIN(start_s) FROM runs a "
        "WHERE a.key = p.key AND a.start_s > r.start_s)",
        "ended_s": "v.ended_s",
        "for_gpus": "w.gpus",
        "for_start_s": "w.start_s",
        "for_end_s": "COALESCE(w.end_s, w.start_s + w.elapsed_s)",
        **_COST_COLUMNS,
    },
}
"""The columns of ``period`` by table: name and SQL.

The tables have the jobs that existed in that time, all their runs, and the preemptions. A
preemption has the run that it ended (``start_s`` to ``left_s``), the next start of the victim or
else its end, the preemptor's first run since (``for_*``), and its cost, if known.
"""

_IS_THERE = "submitted_s < :until AND (ended_s IS NULL OR ended_s >= :since)"
_IS_SEEN = "(:user IS NULL OR (:user != '' AND {} = :user))"


_OF_VICTIM = (
    *("signalled_s", "tier", "gpus", "start_s", "left_s", "again_s", "ended_s", "false_verdicts"),
    *_COST_COLUMNS,
)
_OF_PREEMPTOR = ("for_tier", "for_gpus", "for_start_s", "for_end_s")
"""Columns of a preemption that are null if the victim or preemptor is another user's job."""


def _rows_of(table: str, source: str) -> str:
    columns = dict(PERIOD[table])
    if table == "preemptions":
        for names, user in ((_OF_VICTIM, "v.user"), (_OF_PREEMPTOR, "o.user")):
            seen = _IS_SEEN.format(user)
            columns |= {name: f"CASE WHEN {seen} THEN {columns[name]} END" for name in names}
    return f"SELECT json_array({', '.join(columns.values())}) FROM {source}"


_PERIOD_QUERIES: Mapping[str, str] = {
    "jobs": _rows_of("jobs", f"jobs WHERE {_IS_THERE} AND {_IS_SEEN.format('user')}"),
    "runs": _rows_of(
        "runs",
        "jobs j CROSS JOIN runs i ON i.key = j.key "
        f"WHERE {_IS_THERE} AND {_IS_SEEN.format('j.user')}",
    ),
    "preemptions": _rows_of(
        "preemptions",
        "preemptions p JOIN jobs v ON v.key = p.key "
        # The preemptor's id may have been given to a new job since.
        "LEFT JOIN jobs o ON o.key = p.for_job AND o.submitted_s <= p.at_s "
        "LEFT JOIN runs r ON r.key = p.key AND r.start_s = p.run_start_s "
        "LEFT JOIN preemption_costs c ON c.key = p.key AND c.run_start_s = p.run_start_s "
        # Accounting has whole seconds.
        "LEFT JOIN runs w ON w.key = o.key AND w.start_s = (SELECT MIN(b.start_s) "
        "FROM runs b WHERE b.key = o.key AND b.start_s >= r.end_s - 2) "
        "WHERE p.at_s >= :since AND p.at_s < :until "
        f"AND ({_IS_SEEN.format('v.user')} OR {_IS_SEEN.format('o.user')})",
    ),
}
_PERIOD_EVENTS = (
    "SELECT json_group_object(kind, times) FROM (SELECT kind, COUNT(*) AS times FROM events "
    "WHERE at_s >= :since AND at_s < :until AND (:user IS NULL OR job_id IN "
    f"(SELECT key FROM jobs WHERE {_IS_SEEN.format('user')})) GROUP BY kind)"
)


def period(
    ledger: Ledger,
    since_s: float,
    until_s: float,
    user: str | None = None,
    most_bytes: float = math.inf,
) -> bytearray:
    """Return what happened in [``since_s``, ``until_s``) as JSON: rows of ``PERIOD``, by table.

    With a ``user``, only what concerns this user's jobs, and nothing but the ids of others'
    jobs. SQLite generates the JSON row by row, so that Python's other threads can run
    meanwhile: 300,000 jobs take two seconds. Raises ``RefusedError`` if it is longer than
    ``most_bytes``.
    """
    values = {"since": since_s, "until": until_s, "user": user}
    found = bytearray(b"{")
    # In one transaction, so that all tables are of the same moment.
    with ledger.snapshot():
        for name, query in _PERIOD_QUERIES.items():
            found += f'"{name}":['.encode()
            for (row,) in ledger.read(query, values):
                found += row.encode()
                found += b","
                if len(found) > most_bytes:
                    raise RefusedError(
                        f"The report of this time has more than {most_bytes / 1e6:.0f} MB",
                        "Ask for less",
                    )
            if found.endswith(b","):
                found.pop()
            found += b"],"
        events = ledger.read_one(_PERIOD_EVENTS, values)
        began = ledger.value(FIRST_LOOK) or "null"
        pruned = ledger.pruned_before_s
    told = f'"events":{events},"began_s":{began},"pruned_before_s":{pruned}}}'
    found += told.encode()
    return found
