"""Hugging Face Trainer (and subclasses): a callback that reports, saves and exits.

from slurm_tiresias.job.transformers import Preemptible, last_checkpoint

trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Preemptible()])
trainer.train(resume_from_checkpoint=last_checkpoint(arguments.output_dir))
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from slurm_tiresias.job import session
from slurm_tiresias.job.files import by_step
from slurm_tiresias.job.torch import any_rank

WRITTEN_LAST = "trainer_state.json"
"""The file that the trainer writes last into a checkpoint."""


class Preemptible(TrainerCallback):  # type: ignore[misc]
    """Makes the trainer save on request, before the time limit and every ``every_min`` minutes.

    Once the job has been told to leave and has saved, ``train`` raises ``SystemExit``.
    """

    def __init__(self, every_min: float = 30.0) -> None:
        self.every_min = every_min

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        session.listen()
        session.resumed(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        session.report(state.global_step, state.max_steps if state.max_steps > 0 else None)
        if session.save_due(self.every_min, any_rank):
            session.saving()
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        session.saved(state.global_step)
        if session.leaving(any_rank) and state.global_step < state.max_steps:
            session.leave()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        session.done()


def last_checkpoint(folder: str | os.PathLike[str]) -> str | None:
    """The newest complete checkpoint in an output folder; None if there is none.

    The trainer's own search also accepts a folder that was left incomplete by a kill.
    """
    found = by_step(Path(folder), "checkpoint-").items()
    steps = {step: path for step, path in found if (path / WRITTEN_LAST).exists()}
    return str(steps[max(steps)]) if steps else None
