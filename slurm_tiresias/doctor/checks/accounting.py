"""Whether Slurm's accounting records the resources that jobs used."""

from __future__ import annotations

from slurm_tiresias.doctor.checks.files import known, slurm_conf
from slurm_tiresias.doctor.finding import Finding, check, ok, warning
from slurm_tiresias.doctor.seen import Seen

SLURMDBD = "accounting_storage/slurmdbd"
ALWAYS_COUNTED = frozenset({"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"})
"""TRES that Slurm always lists in AccountingStorageTRES, whether configured or not."""


@check("settings")
def _accounting(seen: Seen) -> Finding:
    """Accounting has what jobs used while no controller ran, and the history for `simulate` and
    `tune`; a damaged ledger is rebuilt from it."""
    kind = known(seen).word("AccountingStorageType")
    if kind == SLURMDBD:
        return ok(kind)
    return warning(
        f"{kind or 'none'}: jobs are not accounted for",
        slurm_conf("AccountingStorageType", SLURMDBD),
        do=("systemctl enable --now slurmdbd    # set up as man slurmdbd.conf says",),
    )


@check("settings")
def _accounting_tres(seen: Seen) -> Finding | None:
    """Accounting must record GPUs to know what a job has attained."""
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
