"""Keras 3: train, save and exit between two batches, and resume with the next one.

    from slurm_tiresias.job.keras import fit

    fit(model, data, folder, epochs=10)

``data`` is a ``keras.utils.PyDataset`` with a length, whose batch of each index is always the same.
``model.fit`` itself can only begin with the first batch of an epoch. For other data use the
callback ``Preemptible``, which repeats some batches after a preemption.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import keras

from slurm_tiresias.job import session
from slurm_tiresias.job.files import by_step, sync

_NAME, _SUFFIX = "step-", ".weights.h5"
_SEEDS, _TORCH = "random_states/keras", "random_states/torch"


class Preemptible(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves on request, before the time limit and every ``every_min`` minutes.

        preemptible = Preemptible(folder, steps_per_epoch)
        epoch = preemptible.done // steps_per_epoch
        model.fit(inputs, targets, epochs=10, initial_epoch=epoch, callbacks=[preemptible])

    A checkpoint is one file in ``folder``: the weights of the model and of its optimizer, and the
    states of its random numbers. The newest one is loaded when the training begins. Once the job
    was told to leave and has saved, ``fit`` raises ``SystemExit``. For one process, with any number
    of GPUs.
    """

    def __init__(
        self, folder: str | os.PathLike[str], steps_per_epoch: int, every_min: float = 30.0
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.steps_per_epoch = steps_per_epoch
        self.every_min = every_min
        self.done = max(self._checkpoints(), default=0)
        """The number of steps in the newest checkpoint; 0 if there is none."""
        self.skipped = 0
        """Batches that the next epoch skips, because they were done before the preemption."""
        self.total: int | None = None
        """Steps of the whole training; None: those of this ``model.fit``."""
        self._before_epoch = 0
        self._step: int | None = None
        self._torch_states: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        session.listen()
        if self.total is None:
            self.total = self.params["epochs"] * self.steps_per_epoch
        if self._step is None and self.done:
            # Not earlier: building the model for its data also draws random numbers.
            self._load(self._checkpoints()[self.done])
            if not self.skipped:
                self._restore_torch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # Not earlier in the middle of an epoch: its data loader first draws a random number.
        self._restore_torch()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._before_epoch = epoch * self.steps_per_epoch + self.skipped
        self.skipped = 0
        if self._step is None:
            session.resumed(self._before_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = self._step = self._before_epoch + batch + 1
        session.report(step, self.total)
        session.save_if_due(self._save, step, self.every_min, is_last=step == self.total)

    def on_train_end(self, logs: Any = None) -> None:
        if self._step == self.total:
            session.done()

    def _load(self, path: Path) -> None:
        model = self.model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(path)
        with h5py.File(path) as file:
            for number, seed in enumerate(_seeds(model)):
                seed.assign(file[f"{_SEEDS}/{number}"][()])
            self._torch_states = [states[()] for states in file.get(_TORCH, {}).values()]

    def _restore_torch(self) -> None:
        if self._torch_states:
            import torch

            cpu, *gpus = (torch.from_numpy(state) for state in self._torch_states)
            torch.set_rng_state(cpu)
            if len(gpus) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(gpus)
            self._torch_states = []

    def _save(self, step: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"draft{_SUFFIX}"
        model = self.model
        model.save_weights(draft, overwrite=True)
        # Keras skips these.
        with h5py.File(draft, "a") as file:
            for number, seed in enumerate(_seeds(model)):
                file[f"{_SEEDS}/{number}"] = keras.ops.convert_to_numpy(seed)
            for number, state in enumerate(_torch_states()):
                file[f"{_TORCH}/{number:04}"] = state
        sync(draft)
        whole = self.folder / f"{_NAME}{step}{_SUFFIX}"
        draft.replace(whole)
        sync(self.folder)
        for other in self._checkpoints().values():
            if other != whole:
                other.unlink()

    def _checkpoints(self) -> dict[int, Path]:
        return by_step(self.folder, _NAME, _SUFFIX)


def fit(
    model: Any,
    data: keras.utils.PyDataset,
    folder: str | os.PathLike[str],
    epochs: int,
    every_min: float = 30.0,
    callbacks: Sequence[Any] = (),
    **more: Any,
) -> None:
    """Train for ``epochs`` in total, from the checkpoint in ``folder`` if there is one.

    The rest of an interrupted epoch is a separate ``model.fit``, and the metrics of that epoch
    cover its rest only. The model must be built and compiled. ``more`` is passed to ``model.fit``.
    """
    preemptible = Preemptible(folder, len(data), every_min)
    preemptible.total = epochs * len(data)
    epoch, batch = divmod(preemptible.done, len(data))
    more = {**more, "callbacks": [*callbacks, preemptible], "shuffle": False}
    if batch:
        preemptible.skipped = batch
        model.fit(_Rest(data, batch), initial_epoch=epoch, epochs=epoch + 1, **more)
        epoch += 1
    if epoch < epochs:
        model.fit(data, initial_epoch=epoch, epochs=epochs, **more)


def _seeds(model: Any) -> list[Any]:
    return [one for one in model.variables if one.name == "seed_generator_state"]


def _torch_states() -> list[Any]:
    """PyTorch's own random states, which Keras uses in addition: of the CPU and of each GPU."""
    if keras.backend.backend() != "torch":
        return []
    import torch

    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return [state.numpy() for state in (torch.get_rng_state(), *gpus)]


class _Rest(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of a dataset from ``first`` on."""

    def __init__(self, data: keras.utils.PyDataset, first: int) -> None:
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data = data
        self.first = first

    def __len__(self) -> int:
        return len(self.data) - self.first

    def __getitem__(self, index: int) -> Any:
        return self.data[self.first + index]

    def on_epoch_begin(self) -> None:
        self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.data.on_epoch_end()
