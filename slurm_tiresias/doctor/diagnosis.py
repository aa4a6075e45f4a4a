"""From what was seen to findings, and from findings to the lines that would mend them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_tiresias.doctor.checks import CHECKS
from slurm_tiresias.doctor.checks.files import PLUGSTACK_CONF, SLURM_CONF
from slurm_tiresias.doctor.finding import Check, Finding, Mend, Severity
from slurm_tiresias.doctor.seen import Seen

SPACED = ("tiresias.toml", "job_submit.lua")
"""Files that are written with spaces around the sign."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line to write. ``place`` says where, as far as it matters: in the place of its twin that
    stands there now, or below which section.
    """

    file: str
    line: str
    place: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is right and wrong. ``unchecked`` names the checks for which too little was seen."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    lines: Mapping[tuple[str, str], Line]
    """All lines to write, by file and key: whatever changes one list stands in one line."""

    @property
    def worst(self) -> Severity:
        order = list(Severity)
        return max((each.severity for each in self.findings), key=order.index, default=Severity.OK)

    def lines_of(self, finding: Finding) -> tuple[Line, ...]:
        return tuple(self.lines[mend.file, mend.key] for mend in finding.mends)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def diagnose(seen: Seen, checks: Iterable[Check] = CHECKS) -> Diagnosis:
    """Make every check for which enough was seen."""
    findings, unchecked = [], []
    for check in checks:
        if any(getattr(seen, needed) is None for needed in check.needs):
            unchecked.append(check.name)
        elif verdict := check.judge(seen):
            findings.append(
                Finding(
                    *(check.name, verdict.severity, verdict.seen, check.why),
                    *(verdict.mends, verdict.do),
                )
            )
    mends = [mend for finding in findings for mend in finding.mends]
    return Diagnosis(tuple(findings), tuple(unchecked), _lines(mends, seen))


def _lines(mends: Iterable[Mend], seen: Seen) -> dict[tuple[str, str], Line]:
    by_place: dict[tuple[str, str], list[Mend]] = {}
    for mend in mends:
        by_place.setdefault((mend.file, mend.key), []).append(mend)
    return {place: _line(*place, some, seen) for place, some in by_place.items()}


def _line(file: str, key: str, mends: list[Mend], seen: Seen) -> Line:
    """One line that does all of this."""
    values = [mend.value for mend in mends if mend.value]
    value = values[-1] if values else _changed_list(key, mends, seen)
    return Line(_path(file, seen), f"{_before(file, key)}{value}", _place(file, mends[0], seen))


def _place(file: str, mend: Mend, seen: Seen) -> str:
    if mend.section:
        return f"below {mend.section}"
    stands = seen.places.get(mend.key.lower(), "") if file == SLURM_CONF else ""
    return f"in the place of {stands.removesuffix(f' of {seen.slurm_conf}')}" if stands else ""


def _changed_list(key: str, mends: list[Mend], seen: Seen) -> str:
    """The words that stand there, less those that are dropped, and those that come to it."""
    gone = {name.lower() for mend in mends for name in mend.drop}
    stands = seen.settings.words(key) if seen.settings else ()
    kept = [word for word in stands if word.partition("=")[0].strip().lower() not in gone]
    return ",".join([*kept, *(word for mend in mends for word in mend.add)])


def _before(file: str, key: str) -> str:
    if file == PLUGSTACK_CONF:
        return f"{key} "
    return f"{key} = " if file in SPACED else f"{key}="


def _path(file: str, seen: Seen) -> str:
    """The file's whole path, where that is known."""
    if file == SLURM_CONF:
        return seen.slurm_conf
    if file in ("cgroup.conf", PLUGSTACK_CONF, "job_submit.lua"):
        return f"{seen.slurm_conf_folder}/{file}"
    return seen.config_file if file == "tiresias.toml" else file
