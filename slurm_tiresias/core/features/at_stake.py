"""What a preemption of a running job would lose, from what is known about the job and its program.

What jobs report about their saves may be wrong, even on purpose. It only decides which of several
jobs of a tier is preempted, and when, and a job's gain from false reports is bounded: work counts
as unsaved for at most twice as long as the job usually takes between two saves, and without a save
for no longer than what its program is known to lose (docs/explanation/algorithm.md).
"""

from __future__ import annotations

import math
from typing import Final

from slurm_tiresias.model import USUAL_STAKE, JobProgress, ProgramCosts, WorkAtStake

MOST_INTERVALS: Final = 2.0
"""Work counts as unsaved for at most this many times the usual time between two saves."""

SAVES_WHEN_ASKED: Final = 0.5
"""A program that saved on request in at least this share of its preemptions is expected to do so
again: its preemptions need not wait for a save. Before any was measured, it is expected of programs
that listen for the request."""


def work_at_stake(
    running_since_s: float,
    progress: JobProgress | None,
    costs: ProgramCosts | None,
    saved_every_s: float | None = None,
) -> WorkAtStake | None:
    """Return what preempting a running job would lose; None if nothing is known.

    Parameters
    ----------
    running_since_s
        Start of its run, by Slurm's clock.
    progress
        What this run has reported; None if nothing.
    costs
        What preemptions of its program cost; None if the site has measured none.
    saved_every_s
        The time between its saves as last observed, in this or an earlier run; None if it has
        never saved.
    """
    listens = progress is not None and progress.listens
    if costs is None and (progress is None or (progress.saved_s is None and not listens)):
        return None
    restart_s = USUAL_STAKE.restart_s if costs is None else costs.restart_s
    usual_s = USUAL_STAKE.most_unsaved_s if costs is None else costs.unsaved_s
    if listens and (costs is None or not costs.measured):
        return WorkAtStake(-math.inf, 0.0, restart_s)
    saves_when_asked = costs is not None and costs.saved_when_asked >= SAVES_WHEN_ASKED
    if progress is None or saves_when_asked:
        return WorkAtStake(-math.inf, usual_s, restart_s)
    every_s = progress.save_every_s or saved_every_s or (costs.save_every_s if costs else None)
    # Before its first report it has loaded its state, which does not count as work.
    since_s, most_s = max(running_since_s, progress.first_s or running_since_s), usual_s
    if progress.saved_s is not None:
        began_s, since_s = since_s, max(since_s, progress.saved_s)
        # After its first save it is expected to save again after as long.
        every_s = every_s or since_s - began_s
        most_s = max(usual_s, MOST_INTERVALS * every_s)
    return WorkAtStake(since_s, most_s, restart_s, since_s + every_s if every_s else None)
