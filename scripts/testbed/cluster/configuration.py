"""The configuration files of a cluster: Slurm's, munge's and MariaDB's."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.testbed.cluster.model import Place, Ports, Shape
from scripts.testbed.cluster.packages import program

RECORD_KEYS = frozenset({"nodename", "partitionname", "nodeset", "downnodes"})
"""slurm.conf keys that may occur on several lines, one for each name."""

OWN_FILES = frozenset(
    {
        "slurm.conf",
        "gres.conf",
        "cgroup.conf",
        "slurmdbd.conf",
        "munge.key",
        "database.cnf",
        "database.sql",
    }
)
"""The files that this script itself writes into the configuration folder."""

CONTROLLERS = {"slurmctld": ("ctl1", "127.0.0.1"), "backup": ("ctl2", "127.0.0.2")}
"""Host name and address of each slurmctld of a cluster with a backup."""


def own_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def slurm_version() -> tuple[int, ...]:
    answer = subprocess.run(
        [program("slurmctld") or "slurmctld", "-V"], capture_output=True, text=True, check=False
    )
    numbers = re.findall(r"\d+", answer.stdout)
    return tuple(int(number) for number in numbers[:2])


def default_lines(place: Place, shape: Shape, ports: Ports) -> list[str]:
    # A number, because 26.05 does not find the user "nobody" by name.
    user = os.getuid()
    lines = [
        f"ClusterName={place.cluster_name}",
        *controller_lines(shape),
        f"SlurmctldPort={ports.slurmctld}",
        f"SlurmUser={shape.slurm_user or user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={place.munge_socket}",
        "CredType=cred/munge",
        f"StateSaveLocation={place['state']}",
        f"SlurmdSpoolDir={place['spool']}/%n",
        f"SlurmctldPidFile={place['run']}/slurmctld.pid",
        f"SlurmdPidFile={place['run']}/slurmd.%n.pid",
        f"SlurmctldLogFile={place['log']}/slurmctld.log",
        f"SlurmdLogFile={place['log']}/slurmd.%n.log",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        "LogTimeFormat=iso8601_ms",
        "MailProg=/bin/true",
        "MpiDefault=none",
        # The nodes are configured with more resources than this machine has.
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "PropagateResourceLimits=NONE",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        # Without it a job that requests no memory gets all of the node's, and no other job fits.
        f"DefMemPerCPU={max(1, shape.memory_mb // shape.cpus)}",
        "GresTypes=gpu",
        "PriorityType=priority/multifactor",
        "PreemptMode=OFF",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=2,batch_sched_delay=1,sched_interval=2,disable_job_shrink",
        "JobRequeue=1",
        "JobFileAppend=1",
        "KillWait=5",
        "MinJobAge=300",
    ]
    return lines + address_lines(shape) + accounting_lines(place, shape, ports)


def controller_lines(shape: Shape) -> list[str]:
    if not shape.backup:
        return ["SlurmctldHost=localhost(127.0.0.1)"]
    hosts = [f"SlurmctldHost={host}({address})" for host, address in CONTROLLERS.values()]
    return [*hosts, "SlurmctldTimeout=5"]


def address_lines(shape: Shape) -> list[str]:
    """Return the settings that make Slurm listen on the loopback address only, if possible.

    Slurm listens either on all addresses or on the one that the machine's name resolves to; each
    slurmctld of a cluster with a backup runs under its own host name.
    """
    if own_name_is_local():
        return ["CommunicationParameters=NoInAddrAny,NoCtldInAddrAny"]
    return ["CommunicationParameters=NoCtldInAddrAny"] if shape.backup else []


def own_name_is_local() -> bool:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)
    except OSError:
        return False
    return {address[4][0] for address in found} == {"127.0.0.1"}


def accounting_lines(place: Place, shape: Shape, ports: Ports) -> list[str]:
    if not shape.accounting:
        # AccountingStorageTRES is a fatal error without accounting storage.
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={ports.slurmdbd}",
        f"AccountingStoragePass={place.munge_socket}",
        "AccountingStorageTRES=gres/gpu",
    ]


def record_lines(shape: Shape, ports: Ports) -> list[str]:
    """Return the lines for nodes and partitions."""
    nodes = [
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports.slurmd[number]} "
        f"CPUs={shape.cpus} RealMemory={shape.memory_mb} Gres={shape.gres(number)} State=UNKNOWN"
        for number, name in enumerate(shape.node_names())
    ]
    partitions = [
        f"PartitionName={name} Nodes=n[1-{shape.nodes}] Default={'NO' if number else 'YES'} "
        "MaxTime=INFINITE State=UP"
        for number, name in enumerate(shape.partitions)
    ]
    return nodes + partitions


def key_of(line: str) -> str:
    """Return what identifies the object of a line: the key, or for records key and name."""
    first = line.split()[0].lower()
    key = first.partition("=")[0]
    return first if key in RECORD_KEYS else key


def with_user_lines(lines: Sequence[str], user_lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines, overridden by the user's with the same key; and the user's new lines."""
    result = list(lines)
    new: list[str] = []
    for line in user_lines:
        for group in (result, new):
            keys = [key_of(known) for known in group]
            if key_of(line) in keys:
                at = keys.index(key_of(line))
                group[at] = put_over(group[at], line)
                break
        else:
            new.append(line)
    return result, new


def put_over(ours: str, theirs: str) -> str:
    key = key_of(theirs)
    if "=" in key:
        fields = {key_of(part): part for part in [*ours.split(), *theirs.split()]}
        return " ".join(fields.values())
    if key == "authinfo" and "socket=" not in theirs:
        # A user's line that sets only cred_expire must keep this cluster's munge socket.
        return f"{ours},{theirs.partition('=')[2]}"
    return theirs


def slurm_conf_text(place: Place, shape: Shape, ports: Ports) -> str:
    # The user's new lines come before nodes and partitions, because DEFAULT lines must.
    plain = default_lines(place, shape, ports)
    everything = plain + record_lines(shape, ports)
    merged, new = with_user_lines(everything, shape.slurm_conf_lines)
    lines = merged[: len(plain)] + new + merged[len(plain) :]
    return "\n".join(["# Written by scripts/cluster.", *lines, ""])


def gres_conf_text(place: Place, shape: Shape) -> str:
    files = f"{place['gpu']}/gpu[0-{shape.gpus - 1}]" if shape.gpus > 1 else f"{place['gpu']}/gpu0"
    lines = [
        f"NodeName={name} Name=gpu {f'Type={kind} ' if kind else ''}File={files}"
        for name, kind in zip(shape.node_names(), shape.gpu_types, strict=True)
    ]
    return "\n".join(
        ["# Written by scripts/cluster.", "AutoDetect=off", *lines, *shape.gres_conf_lines, ""]
    )


def cgroup_conf_text(version: tuple[int, ...]) -> str:
    """No plugin chosen above uses cgroups, so slurmd must not fail if there are none."""
    if version >= (23,):
        return "CgroupPlugin=disabled\n"
    # 22.05 cannot disable cgroups, but with a version set it does not look for them.
    return "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def slurmdbd_conf_text(place: Place, shape: Shape, ports: Ports, password: str) -> str:
    # 22.05 compares names; 26.05 does not find the user "nobody" by name.
    user = own_user() if slurm_version() < (23, 2) else os.getuid()
    lines = [
        "# Written by scripts/cluster.",
        "AuthType=auth/munge",
        f"AuthInfo=socket={place.munge_socket}",
        "DbdHost=localhost",
        "DbdAddr=127.0.0.1",
        f"DbdPort={ports.slurmdbd}",
        f"SlurmUser={shape.slurm_user or user}",
        f"LogFile={place['log']}/slurmdbd.log",
        f"PidFile={place['run']}/slurmdbd.pid",
        "DebugLevel=info",
        "StorageType=accounting_storage/mysql",
        "StorageHost=127.0.0.1",
        f"StoragePort={ports.database}",
        "StorageUser=slurm",
        f"StoragePass={password}",
        "StorageLoc=slurm_acct_db",
        "",
    ]
    return "\n".join(lines)


def database_conf_text(place: Place, ports: Ports) -> str:
    """Return settings for a temporary database: small, and without waiting for the disk."""
    lines = [
        "# Written by scripts/cluster.",
        "[mariadbd]",
        f"user={own_user()}",
        f"datadir={place['database']}",
        f"tmpdir={place['database-tmp']}",
        f"socket={place['run']}/database.socket",
        f"pid-file={place['run']}/database.pid",
        f"log-error={place['log']}/database.log",
        f"init-file={place['etc']}/database.sql",
        "bind-address=127.0.0.1",
        f"port={ports.database}",
        "skip-name-resolve",
        "performance_schema=OFF",
        "max_connections=20",
        "key_buffer_size=1M",
        "aria_pagecache_buffer_size=8M",
        "innodb_buffer_pool_size=24M",
        "innodb_log_file_size=8M",
        "innodb_autoextend_increment=4",
        "innodb_lock_wait_timeout=900",
        "innodb_flush_log_at_trx_commit=0",
        "innodb_flush_method=nosync",
        "innodb_doublewrite=0",
        "innodb_use_native_aio=0",
        "",
    ]
    return "\n".join(lines)


def database_accounts_text(password: str) -> str:
    """Return SQL that runs before the first connection, so that no other user can become root."""
    lines = [
        "CREATE DATABASE IF NOT EXISTS slurm_acct_db;",
        f"CREATE OR REPLACE USER slurm@127.0.0.1 IDENTIFIED BY '{password}';",
        "GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;",
        "DELETE FROM mysql.global_priv WHERE User <> 'slurm' AND User <> 'mariadb.sys';",
        "FLUSH PRIVILEGES;",
        "",
    ]
    return "\n".join(lines)


def write_private(path: Path, content: bytes) -> None:
    """Write a file created with its final mode, so that a secret is never readable by others."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def write_files(place: Place, shape: Shape, ports: Ports) -> None:
    for name in ("etc", "run", "log", "state", "spool", "gpu"):
        place[name].mkdir()
        place[name].chmod(0o755)
    for name in shape.node_names():
        place[f"spool/{name}"].mkdir(mode=0o755)
    for number in range(shape.gpus):
        place[f"gpu/gpu{number}"].symlink_to("/dev/null")
    write_private(place["etc/munge.key"], secrets.token_bytes(128))
    place.slurm_conf.write_text(slurm_conf_text(place, shape, ports))
    place["etc/gres.conf"].write_text(gres_conf_text(place, shape))
    if shape.backup:
        hosts = [f"{address} {host}" for host, address in CONTROLLERS.values()]
        place["etc/hosts"].write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        # A starting slurmctld kills the process in its pid file, so each needs its own.
        text = place.slurm_conf.read_text()
        for name in ("run/slurmctld.pid", "log/slurmctld.log"):
            text = text.replace(name, name.replace("slurmctld", "backup"))
        place["etc/backup.conf"].write_text(text)
    place["etc/cgroup.conf"].write_text(cgroup_conf_text(slurm_version()))
    if shape.accounting:
        write_accounting_files(place, shape, ports)
    if shape.slurm_user:
        give_to_slurm_user(place, shape)
    for file in shape.conf_files:
        # All users' commands read some of these files, such as plugstack.conf.
        copy = place["etc"] / Path(file).name
        shutil.copyfile(file, copy)
        copy.chmod(0o644)


def write_accounting_files(place: Place, shape: Shape, ports: Ports) -> None:
    password = secrets.token_hex(16)
    for name in ("database", "database-tmp"):
        place[name].mkdir(mode=0o700)
    slurmdbd_conf = slurmdbd_conf_text(place, shape, ports, password)
    write_private(place["etc/slurmdbd.conf"], slurmdbd_conf.encode())
    write_private(place["etc/database.cnf"], database_conf_text(place, ports).encode())
    write_private(place["etc/database.sql"], database_accounts_text(password).encode())


def give_to_slurm_user(place: Place, shape: Shape) -> None:
    """Give SlurmUser the files that its daemons write, and the one with the database password."""
    daemons = ["slurmctld", *(["backup"] if shape.backup else [])]
    daemons += ["slurmdbd"] if shape.accounting else []
    logs = [place[f"log/{daemon}.log"] for daemon in daemons]
    for log in logs:
        log.touch()
    secret = [place["etc/slurmdbd.conf"]] if shape.accounting else []
    for path in (place["state"], *logs, *secret):
        shutil.chown(path, shape.slurm_user)
