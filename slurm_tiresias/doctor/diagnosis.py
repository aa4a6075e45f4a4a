"""Run the checks on what was seen, and merge their changes into configuration lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurm_tiresias.doctor.checks import CHECKS
from slurm_tiresias.doctor.checks.files import PLUGSTACK_CONF, SLURM_CONF
from slurm_tiresias.doctor.finding import Check, Finding, Mend, Severity
from slurm_tiresias.doctor.seen import Seen

SPACED = ("tiresias.toml", "job_submit.lua")
"""Files in which the equals sign has spaces around it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line to write. ``place`` says where, if that matters: which existing line it replaces, or
    below which section it belongs.
    """

    file: str
    line: str
    place: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings. ``unchecked`` names the checks that lacked the facts they need."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    lines: Mapping[tuple[str, str], Line]
    """Lines to write, by file and key: all changes to one setting are merged into one line."""

    @property
    def worst(self) -> Severity:
        order = list(Severity)
        return max((each.severity for each in self.findings), key=order.index, default=Severity.OK)

    def lines_of(self, finding: Finding) -> tuple[Line, ...]:
        return tuple(self.lines[mend.file, mend.key] for mend in finding.mends)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def diagnose(seen: Seen, checks: Iterable[Check] = CHECKS) -> Diagnosis:
    """Run every check whose facts are known."""
    findings, unchecked = [], []
    for check in checks:
        if any(getattr(seen, needed) is None for needed in check.needs):
            unchecked.append(check.name)
        elif found := check.judge(seen):
            findings.append(replace(found, name=check.name, why=check.why))
    by_place: dict[tuple[str, str], list[Mend]] = {}
    for finding in findings:
        for mend in finding.mends:
            by_place.setdefault((mend.file, mend.key), []).append(mend)
    lines = {(file, key): _line(file, key, by_place[file, key], seen) for file, key in by_place}
    return Diagnosis(tuple(findings), tuple(unchecked), lines)


def _line(file: str, key: str, mends: list[Mend], seen: Seen) -> Line:
    """Merge all changes to one setting into one line."""
    values = [mend.value for mend in mends if mend.value]
    if not values:
        # A list keeps its words except those to drop, and gains those to add.
        gone = {name.lower() for mend in mends for name in mend.drop}
        words = seen.settings.words(key) if seen.settings else ()
        kept = [word for word in words if word.partition("=")[0].strip().lower() not in gone]
        values = [",".join([*kept, *(word for mend in mends for word in mend.add)])]
    sign = " " if file == PLUGSTACK_CONF else " = " if file in SPACED else "="
    return Line(_path(file, seen), f"{key}{sign}{values[-1]}", _place(file, mends[0], seen))


def _place(file: str, mend: Mend, seen: Seen) -> str:
    if mend.section:
        return f"below {mend.section}"
    stands = seen.places.get(mend.key.lower(), "") if file == SLURM_CONF else ""
    return f"instead of {stands.removesuffix(f' of {seen.slurm_conf}')}" if stands else ""


def _path(file: str, seen: Seen) -> str:
    """Return the full path of the file, if it is known."""
    if file == SLURM_CONF:
        return seen.slurm_conf
    if file in ("cgroup.conf", PLUGSTACK_CONF, "job_submit.lua"):
        return f"{seen.slurm_conf_folder}/{file}"
    return seen.config_file if file == "tiresias.toml" else file
