"""Ledgers as older versions wrote them."""

from __future__ import annotations

import sqlite3

LIFECYCLE_COLUMNS = {
    "claim": "TEXT DEFAULT ''",
    "claimed_s": "REAL",
    "claim_free_s": "REAL",
    "vacating_for": "TEXT DEFAULT ''",
    "vacating_since_s": "REAL",
    "requeue_sent_s": "REAL",
    "settling": "INTEGER DEFAULT 0",
    "gave_up_s": "REAL",
    "gave_up_on": "TEXT DEFAULT ''",
    "times_given_up": "INTEGER DEFAULT 0",
}
"""The columns of jobs that schema 6 made rows of other tables."""


def back_to_schema_5(database: sqlite3.Connection) -> None:
    """Undo what schemas 6 to 15 changed; no start or preemption may be under way."""
    back_to_schema_13(database)
    database.execute("DROP TABLE nominations")
    database.execute("DROP TABLE preemptions_under_way")
    database.execute("DROP TABLE run_progress")
    database.execute("DROP TABLE preemption_costs")
    database.execute("DROP TABLE drilled")
    database.execute("ALTER TABLE incarnations DROP COLUMN idle_gpu_s")
    for column in ("lane", "list_refused", "time_limit_s", "claimed_gpu_s", "promised_gpu_s"):
        database.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
    database.execute("ALTER TABLE samples DROP COLUMN time_limit_s")
    for column, kind in LIFECYCLE_COLUMNS.items():
        database.execute(f"ALTER TABLE jobs ADD COLUMN {column} {kind}")
    database.execute("UPDATE facts SET value = '5' WHERE name = 'schema_version'")


def back_to_schema_13(database: sqlite3.Connection) -> None:
    """Undo what schemas 14 to 16 added: preemptions for idle GPUs, clock steps, own graces."""
    database.execute("ALTER TABLE incarnations DROP COLUMN clock_set_by_s")
    database.execute("ALTER TABLE preemptions_under_way DROP COLUMN grace_until_s")
    database.execute("ALTER TABLE preemptions DROP COLUMN late_s")
    database.execute("ALTER TABLE incarnations DROP COLUMN idle_s")
    for table in ("preemptions_under_way", "preemptions"):
        database.execute(f"ALTER TABLE {table} DROP COLUMN cause")
    for column in ("idle_requeues", "idle_signalled_run"):
        database.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
    database.execute("UPDATE facts SET value = '13' WHERE name = 'schema_version'")


def back_to_schema_10(database: sqlite3.Connection) -> None:
    """Undo what schemas 11 to 15 added: programs that passed a drill, lanes, and idle GPUs."""
    back_to_schema_13(database)
    database.execute("ALTER TABLE jobs DROP COLUMN lane")
    database.execute("ALTER TABLE incarnations DROP COLUMN idle_gpu_s")
    database.execute("DROP TABLE drilled")
    database.execute("UPDATE facts SET value = '10' WHERE name = 'schema_version'")


def back_to_schema_9(database: sqlite3.Connection) -> None:
    """Undo what schemas 10 to 15 added: costs of preemptions, learned protections, drills, lanes
    and idle GPUs."""
    back_to_schema_10(database)
    database.execute("DROP TABLE preemption_costs")
    database.execute("ALTER TABLE preemptions_under_way DROP COLUMN asked")
    database.execute("ALTER TABLE incarnations DROP COLUMN redone_s")
    for column in ("first_step_s", "save_every_s", "first_s", "asked_s", "saving_s"):
        database.execute(f"ALTER TABLE run_progress DROP COLUMN {column}")
    database.execute("UPDATE facts SET value = '9' WHERE name = 'schema_version'")
