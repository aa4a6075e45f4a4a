"""Whether Slurm's accounting records the resources that jobs used."""

from __future__ import annotations

from slurm_tiresias.doctor.checks.files import known, slurm_conf
from slurm_tiresias.doctor.finding import Check, Verdict, ok, warning
from slurm_tiresias.doctor.seen import Seen

SLURMDBD = "accounting_storage/slurmdbd"
ALWAYS_COUNTED = frozenset({"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"})
"""TRES that Slurm always lists in AccountingStorageTRES, whether configured or not."""


def _accounting(seen: Seen) -> Verdict:
    kind = known(seen).word("AccountingStorageType")
    if kind == SLURMDBD:
        return ok(kind)
    return warning(
        f"{kind or 'none'}: no accounts of jobs are kept",
        slurm_conf("AccountingStorageType", SLURMDBD),
        do=("systemctl enable --now slurmdbd    # set up as man slurmdbd.conf says",),
    )


def _accounting_tres(seen: Seen) -> Verdict | None:
    has = known(seen)
    if has.word("AccountingStorageType") != SLURMDBD:
        return None
    counted = has.words("AccountingStorageTRES")
    if "gres/gpu" in counted:
        return ok("gres/gpu is counted")
    kept = [name for name in counted if name.lower() not in ALWAYS_COUNTED]
    return warning(
        "gres/gpu is not counted",
        slurm_conf("AccountingStorageTRES", ",".join([*kept, "gres/gpu"])),
    )


CHECKS = (
    Check(
        "accounting",
        "Accounting has what jobs used while no controller ran, and the history for `simulate` "
        "and `tune`; a damaged ledger is rebuilt from it.",
        _accounting,
    ),
    Check(
        "accounting-tres",
        "Accounting must record GPUs to know what a job has attained.",
        _accounting_tres,
    ),
)
