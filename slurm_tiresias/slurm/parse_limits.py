"""Parse ``scontrol -o show assoc_mgr`` and ``show licenses`` into the limits that jobs share.

A bound is printed as ``GrpJobs=6(1)``, with its usage in parentheses, and as ``N`` if there is
none. The record of a QOS ends with the bounds of each account and user that has jobs in it:
``User Limits= 1000={MaxJobsPU=2(1) ...} 1001={...}``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

from slurm_tiresias.model import JobSpec
from slurm_tiresias.slurm import notation, parse_config
from slurm_tiresias.slurm.protocol import Limit

_ENFORCING = frozenset({"limits", "safe", "all"})
"""Values of AccountingStorageEnforce with which Slurm enforces limits."""

_BOUND = re.compile(r"(\d{1,18})\((\d{1,18})\)", re.ASCII)
_BLOCK = re.compile(r"(\S+)=\{([^}]*)\}")
_USER = re.compile(r"([^\s()]*)\((\d+)\)", re.ASCII)
_LICENSE = re.compile(
    r"^LicenseName=(\S+) .*?\bFree=(\d+)(?:.* Mode=(\d))?", re.ASCII | re.MULTILINE
)
_PARTITION = re.compile(r"^PartitionName=(\S+) .*?\bQoS=(\S+)", re.ASCII | re.MULTILINE)

_OF_JOBS = frozenset({"GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA"})
_OF_TRES = frozenset({"GrpTRES", "MaxTRESPU", "MaxTRESPA"})
_OF_TIME = frozenset(
    {"GrpWall", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA"}
)
"""How much of these a job takes is known only once it has ended."""

Left = Mapping[str, float]
"""The unused part of each bound, by its name: ``GrpJobs``, ``GrpTRES=gres/gpu``."""

NO_BOUNDS: Left = {}


@dataclass(slots=True)
class _Qos:
    left: Left
    of_accounts: Mapping[str, Left]
    of_users: Mapping[str, Left]
    """By user id, as text."""


@dataclass(slots=True)
class _Association:
    left: Left
    parent: str


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits of a cluster."""

    licenses: Left
    qos: Mapping[str, _Qos] = field(default_factory=dict)
    associations: Mapping[tuple[str, str, str], _Association] = field(default_factory=dict)
    """By account, user ("" for the account itself) and partition ("" for all)."""
    user_ids: Mapping[str, str] = field(default_factory=dict)
    qos_of_partitions: Mapping[str, str] = field(default_factory=dict)
    layered: Set[str] = frozenset()
    """The hierarchical resources among the licences: what a job takes depends on its nodes."""

    def of(self, spec: JobSpec) -> Iterator[Limit]:
        """Yield the limits that apply to a job."""
        for name, count in licenses_of(spec).items():
            most = math.inf if name in self.layered else count
            yield Limit(f"licence {name}", self.licenses.get(name, 0.0), count, most)
        for whose, bounds in (*self._of_qos(spec), *self._of_associations(spec)):
            for name, left in bounds.items():
                yield Limit(f"{name} of {whose}", left, *_takes(spec, name))

    def _of_qos(self, spec: JobSpec) -> Iterator[tuple[str, Left]]:
        names = {spec.qos, *(self.qos_of_partitions.get(name, "") for name in spec.partitions)}
        user_id = self.user_ids.get(spec.user, spec.user)
        for name in sorted(names & self.qos.keys()):
            of = self.qos[name]
            yield f"QOS {name}", of.left
            yield (
                f"account {spec.account} in QOS {name}",
                of.of_accounts.get(spec.account, NO_BOUNDS),
            )
            yield f"user {spec.user} in QOS {name}", of.of_users.get(user_id, NO_BOUNDS)

    def _of_associations(self, spec: JobSpec) -> Iterator[tuple[str, Left]]:
        for partition in (*spec.partitions, ""):
            own = self.associations.get((spec.account, spec.user, partition))
            if own is not None:
                where = f" and partition {partition}" if partition else ""
                yield f"user {spec.user} in account {spec.account}{where}", own.left
        account, seen = spec.account, set[str]()
        while account not in seen and (above := self.associations.get((account, "", ""))):
            yield f"account {account}", above.left
            seen.add(account)
            account = above.parent


def licenses_of(spec: JobSpec) -> Mapping[str, int]:
    """Parse the number of each requested licence: ``solver:2,cad``, also with ``;`` or ``|``."""
    found: dict[str, int] = {}
    for part in re.split(r"[,;|]", spec.licenses):
        name, _, count = part.strip().partition(":")
        if name:
            found[name] = int(count) if count.isascii() and count.isdecimal() else 1
    return found


def _takes(spec: JobSpec, bound: str) -> tuple[float, float]:
    """Return the least and the most that a job takes of a bound."""
    if bound in _OF_JOBS:
        return 1.0, 1.0
    request = spec.request
    name, _, kind = bound.partition("=")
    if name in _OF_TRES and kind == "gres/gpu":
        return request.gpu_count, request.gpu_count
    least = {"cpu": request.chunk.cpus * request.chunks, "node": request.min_nodes}
    return (least.get(kind, 1) if name in _OF_TRES else 1), math.inf


def limits(config: str, licenses: str, associations: str, partitions: str) -> Limits:
    """Parse four answers of ``scontrol -o``: show config, licenses, assoc_mgr and partition."""
    free, layered = _free(licenses)
    enforced = parse_config.settings(config).get("AccountingStorageEnforce", "").lower()
    if _ENFORCING.isdisjoint(enforced.split(",")):
        return Limits(free, layered=layered)
    of_partitions = {match[1]: match[2] for match in _PARTITION.finditer(partitions)}
    qos: dict[str, _Qos] = {}
    found: dict[tuple[str, str, str], _Association] = {}
    user_ids: dict[str, str] = {}
    for line in associations.splitlines():
        if line.startswith("QOS="):
            name, of = _qos(line)
            qos[name] = of
        elif line.startswith("ClusterName="):
            has = notation.attributes(line)
            user = _USER.fullmatch(has.get("UserName", ""))
            if user is not None:
                user_ids[user[1]] = user[2]
            key = (has.get("Account", ""), user[1] if user else "", has.get("Partition", ""))
            parent = has.get("ParentAccount", "").partition("(")[0]
            found[key] = _Association(_left(has), parent)
    return Limits(free, qos, found, user_ids, of_partitions, layered)


def _free(answer: str) -> tuple[Left, Set[str]]:
    """Return how many of each licence are free, and which licences are hierarchical resources.

    Of these, each layer has a line. In mode 1 one layer is enough for a job, otherwise all have to
    do (scontrol's info_lics.c).
    """
    free: dict[str, float] = {}
    layered = set[str]()
    for name, count, mode in _LICENSE.findall(answer):
        of_layers = max if mode == "1" else min
        free[name] = of_layers(free.get(name, float(count)), float(count))
        if mode:
            layered.add(name)
    return free, layered


def _qos(line: str) -> tuple[str, _Qos]:
    """Parse a QOS record: its own bounds, then those of accounts, then those of users."""
    own, _, rest = line.partition(" Account Limits=")
    of_accounts, _, of_users = rest.partition(" User Limits=")
    name = own.removeprefix("QOS=").partition("(")[0]
    return name, _Qos(
        _left(notation.attributes(own)),
        dict(_blocks(of_accounts)),
        {_id_in(user): left for user, left in _blocks(of_users)},
    )


def _id_in(user: str) -> str:
    """Return the user id in ``0`` or, on later releases, in ``root(0)``."""
    match = _USER.fullmatch(user)
    return match[2] if match else user


def _blocks(words: str) -> Iterator[tuple[str, Left]]:
    for match in _BLOCK.finditer(words):
        yield match[1], _left(notation.attributes(match[2]))


def _left(has: Mapping[str, str]) -> Left:
    """Return the unused part of each bound; 0 if it cannot be read."""
    left: dict[str, float] = {}
    for name in (_OF_JOBS | _OF_TRES | _OF_TIME) & has.keys():
        for part in has[name].split(","):
            kind, equals, bound = part.rpartition("=")
            if bound not in ("", "N") and not bound.startswith("N("):
                match = _BOUND.fullmatch(bound)
                free = float(match[1]) - float(match[2]) if match else 0.0
                left[f"{name}{equals}{kind}"] = max(0.0, free)
    return left
