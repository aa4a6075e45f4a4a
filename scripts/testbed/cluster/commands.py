"""The commands up, down, kill, start, status and env."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import stat
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from scripts.testbed.cluster.configuration import write_files
from scripts.testbed.cluster.daemons import Start, daemon_command, start_everything
from scripts.testbed.cluster.locks import alone_with, pick_ports
from scripts.testbed.cluster.messages import ClusterError, UsageError, say
from scripts.testbed.cluster.model import (
    FOLDER_VARIABLE,
    PATIENCE_S,
    RECORD,
    Place,
    Record,
    Shape,
    Started,
    read_record,
    this_command,
    write_record,
)
from scripts.testbed.cluster.packages import ensure_packages
from scripts.testbed.cluster.processes import Process, end_all, gone_within, is_alive, process, send


def is_a_clusters(place: Place) -> bool:
    """Whether the folder is a cluster's. An `up` killed at once leaves only a draft record."""
    return place.record_file.exists() or place.record_draft.exists()


def check_folder(place: Place) -> None:
    """Refuse a folder that belongs to another user or contains something else."""
    folder = place.folder
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder. Name another with --dir.")
    if folder.stat().st_uid != os.getuid():
        raise UsageError(f"{folder} belongs to another user. Name another with --dir.")
    if not is_a_clusters(place) and any(folder.iterdir()):
        raise UsageError(f"{folder} holds something else. Name an empty or new folder with --dir.")


def remove_folder(place: Place) -> None:
    """Remove a cluster's folder, its record last: an interrupted removal can be repeated."""
    if not is_a_clusters(place):
        return
    for entry in list(place.folder.iterdir()):
        if entry.name == RECORD:
            continue
        if stat.S_ISDIR(entry.lstat().st_mode):
            shutil.rmtree(entry)
        else:
            entry.unlink()
    place.record_file.unlink(missing_ok=True)
    with contextlib.suppress(PermissionError):
        # Another user made the folder, in a parent where this user may not remove it.
        place.folder.rmdir()


def alone_in(place: Place) -> contextlib.AbstractContextManager[None]:
    return alone_with(str(place.folder), f"another command works on {place.folder}, waiting")


def up(place: Place, shape: Shape) -> int:
    ensure_packages(shape.accounting)
    with alone_in(place):
        check_folder(place)
        record = read_record(place)
        if record is not None and is_up(record):
            return already_up(place, record, shape)
        if record is not None:
            say(f"clearing what a dead cluster left in {place.folder}")
        end_all(place, recorded_processes(place))
        remove_folder(place)
        start_new(place, shape)
    print_how_to_use(place)
    return 0


def is_up(record: Record) -> bool:
    return record.ready and all(is_alive(started) for started in record.processes)


def already_up(place: Place, record: Record, shape: Shape) -> int:
    if record.shape != shape:
        raise UsageError(
            f"a cluster of another shape runs in {place.folder}. "
            f"Stop it with `{this_command('down', place)}`, or name another --dir."
        )
    say(f"already running in {place.folder}")
    print_how_to_use(place)
    return 0


def start_new(place: Place, shape: Shape) -> None:
    began = time.monotonic()
    held = pick_ports(shape.nodes)
    record = Record(folder=str(place.folder), shape=shape, ports=held.ports)
    start = Start(place, record, deadline=began + PATIENCE_S)
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        place.folder.chmod(0o755)
        write_record(place, record)
        write_files(place, shape, held.ports)
        say(f"starting {shape.in_words()} in {place.folder}")
        start_everything(start, held)
        write_record(place, replace(start.record, ready=True))
    except BaseException as error:
        end_all(place, start.record.processes)
        if isinstance(error, ClusterError):
            raise ClusterError(f"{error}\n  logs: {place['log']}") from error
        raise
    finally:
        for holder in held.holders:
            holder.close()
    say(f"ready after {time.monotonic() - began:.1f} s")


def print_how_to_use(place: Place) -> None:
    print(f'eval "$({this_command("env", place)})"', flush=True)


def recorded_processes(place: Place) -> tuple[Started, ...]:
    """Return the recorded processes that the record's owner may end; none if it is unreadable."""
    try:
        owner = place.record_file.stat().st_uid
        record = read_record(place)
    except (FileNotFoundError, ClusterError):
        # The processes are still found by their marks.
        return ()
    if os.geteuid() not in (0, owner):
        raise UsageError(f"the cluster in {place.folder} is another user's. Ask its owner.")
    processes = record.processes if record else ()
    # Root must not end arbitrary processes named in a user's file.
    return tuple(p for p in processes if (f := process(p.pid)) and owner in (0, f.owner))


def down(place: Place) -> int:
    with alone_in(place):
        ended = end_all(place, recorded_processes(place))
        remove_folder(place)
    say(f"stopped (processes ended: {ended})" if ended else f"nothing runs in {place.folder}")
    return 0


def kill(place: Place, names: Sequence[str], number: signal.Signals) -> int:
    """Send a signal to daemons; after SIGTERM or SIGKILL wait until they are gone."""
    with alone_in(place):
        known = {started.name: started for started in recorded_processes(place)}
        targets: list[Process] = []
        for name in names:
            found = process(known[name].pid) if name in known else None
            if found is None:
                running = ", ".join(sorted(known)) or "none"
                raise UsageError(f"no daemon {name!r} runs in {place.folder}. Running: {running}.")
            targets.append(found)
        send(targets, number)
        ends = number in (signal.SIGTERM, signal.SIGKILL)
        if ends and not gone_within(PATIENCE_S, targets):
            raise ClusterError(f"still running: {', '.join(names)}")
    return 0


def start_again(place: Place, names: Sequence[str]) -> int:
    """Start daemons that were killed."""
    with alone_in(place):
        record = read_record(place)
        if record is None:
            raise UsageError(f"no cluster in {place.folder}.")
        alive = {started.name for started in record.processes if is_alive(started)}
        start = Start(place, record, deadline=time.monotonic() + PATIENCE_S)
        for name in names:
            command = daemon_command(start, name)
            if name not in alive:
                start.daemon(name, command)
    return 0


def status(place: Place, as_json: bool) -> int:
    record = read_record(place)
    state = "down" if record is None else "up" if is_up(record) else "broken"
    if as_json:
        print(json.dumps(status_fields(place, record, state), indent=2))
    else:
        print(status_text(place, record, state))
    return 0 if state == "up" else 1


def status_fields(place: Place, record: Record | None, state: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"state": state, "dir": str(place.folder)}
    if record is not None:
        processes = [{**asdict(p), "alive": is_alive(p)} for p in record.processes]
        fields |= {
            "slurm_conf": str(place.slurm_conf),
            "logs": str(place["log"]),
            "shape": asdict(record.shape),
            "ports": asdict(record.ports),
            "processes": processes,
        }
    return fields


def status_text(place: Place, record: Record | None, state: str) -> str:
    if record is None:
        return f"no cluster in {place.folder}"
    shape = record.shape
    lines = [f"{state}: {shape.in_words()} in {place.folder}"]
    lines += [
        f"  {started.name:12} {started.pid:8}{'' if is_alive(started) else ' dead'}"
        for started in record.processes
    ]
    return "\n".join(lines)


def env(place: Place) -> int:
    record = read_record(place)
    if record is None:
        raise ClusterError(
            f"no cluster in {place.folder}. Start one with `{this_command('up', place)}`."
        )
    print(f"export SLURM_CONF={shlex.quote(str(place.slurm_conf))}")
    print(f"export {FOLDER_VARIABLE}={shlex.quote(str(place.folder))}")
    return 0
