"""Programs of training frameworks: the progress that is read from their output is right.

Needs tqdm, PyTorch, Lightning, Transformers with Accelerate, or Keras (any builds; no GPU). Each
program runs for seconds, so all waiting times are shorter than on a node by the same factor.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_tiresias.job.record import Record
from slurm_tiresias.progress import output
from tests.monitor.running import make

EPOCHS, STEPS = 6, 40
STEP_S = 0.08
FASTER = 15
LOOK_EVERY_S = 10.0 / FASTER

BEGIN = f"""
import os, sys, time
EPOCHS, STEPS = {EPOCHS}, {STEPS}
done = open(os.environ["DONE"], "wb", 0)
def step():
    time.sleep({STEP_S})
    done.write(b".")
"""

TORCH = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(4 * STEPS, 4), torch.randn(4 * STEPS, 1))
loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
def train(batches, name="loss"):
    for batch, labels in batches:
        optimizer.zero_grad()
        loss = ((model(batch) - labels) ** 2).mean()
        loss.backward()
        optimizer.step()
        step()
    return loss.item()
"""

LIGHTNING = """
import lightning, torch
from lightning.pytorch.callbacks import TQDMProgressBar
from torch.utils.data import DataLoader, TensorDataset
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        step()
        return (self.layer(batch[0]) ** 2).mean()
    def validation_step(self, batch, _):
        pass
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
loader = DataLoader(TensorDataset(torch.randn(4 * STEPS, 4)), batch_size=4)
lightning.Trainer(max_epochs=EPOCHS, logger=False, enable_checkpointing=False, accelerator="cpu",
                  callbacks=[TQDMProgressBar()]).fit(Model(), loader, loader)
"""

TRANSFORMERS = """
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        y = self.layer(x)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}
class Slow(TrainerCallback):
    def on_step_end(self, *_, **__):
        step()
data = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(4 * STEPS)]
arguments = TrainingArguments(
    os.environ["DONE"] + ".out", num_train_epochs=EPOCHS, per_device_train_batch_size=4,
    per_device_eval_batch_size=4, eval_strategy="epoch", logging_steps=5, save_strategy="no",
    report_to=[], use_cpu=True)
Trainer(Model(), arguments, train_dataset=data, eval_dataset=data, callbacks=[Slow()]).train()
"""

KERAS = """
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, *_, **__):
        step()
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = numpy.random.randn(4 * STEPS, 4), numpy.random.randn(4 * STEPS, 1)
model.fit(x, y, epochs=EPOCHS, batch_size=4, validation_data=(x, y), callbacks=[Slow()], verbose=%d)
"""


@dataclass(frozen=True)
class Program:
    """A training and its requirements.

    ``total`` is the expected total; None if the program does not print its number of epochs.
    ``fine`` is False if it prints once per epoch.
    """

    script: str
    needs: tuple[str, ...]
    total: int | None = EPOCHS * STEPS
    fine: bool = True


PROGRAMS = {
    "Hugging Face Trainer": Program(TRANSFORMERS, ("transformers", "accelerate")),
    "Lightning, bars of tqdm": Program(LIGHTNING, ("lightning",), None),
    "Keras, verbose=1": Program(KERAS % 1, ("keras", "torch")),
    "Keras, verbose=2": Program(KERAS % 2, ("keras", "torch"), fine=False),
    "tqdm over all steps": Program(
        "from tqdm import tqdm\nfor _ in tqdm(range(EPOCHS * STEPS)): step()", ("tqdm",)
    ),
    "tqdm in tqdm": Program(
        TORCH + "from tqdm import tqdm\nfor _ in tqdm(range(EPOCHS)): train(tqdm(loader))",
        ("torch", "tqdm"),
    ),
    "tqdm in tqdm, cleared": Program(
        TORCH
        + "from tqdm import trange, tqdm\n"
        + "for _ in trange(EPOCHS, desc='Epochs'): train(tqdm(loader, leave=False))",
        ("torch", "tqdm"),
    ),
    "tqdm named Epoch 3/90": Program(
        TORCH
        + "from tqdm import tqdm\nfor epoch in range(EPOCHS):\n"
        + "    train(tqdm(loader, desc=f'Epoch {epoch + 1}/{EPOCHS}'))",
        ("torch", "tqdm"),
    ),
    "tqdm under a line Epoch 3/90": Program(
        TORCH
        + "from tqdm import tqdm\nfor epoch in range(EPOCHS):\n"
        + "    print(f'Epoch {epoch + 1}/{EPOCHS}', flush=True)\n    train(tqdm(loader))",
        ("torch", "tqdm"),
    ),
    "a line Epoch 3/90 before each": Program(
        TORCH
        + "for epoch in range(EPOCHS):\n"
        + "    print(f'Epoch {epoch + 1}/{EPOCHS}', flush=True)\n    train(loader)",
        ("torch",),
        EPOCHS,
        fine=False,
    ),
    "a line Epoch 3/90, loss after each": Program(
        TORCH
        + "for epoch in range(EPOCHS):\n"
        + "    print(f'Epoch {epoch + 1}/{EPOCHS}, loss {train(loader):.3f}', flush=True)",
        ("torch",),
        EPOCHS,
        fine=False,
    ),
    "lines Epoch [3/90], Step [120/5000]": Program(
        "for epoch in range(EPOCHS):\n    for i in range(STEPS):\n        step()\n"
        "        print(f'Epoch [{epoch + 1}/{EPOCHS}], Step [{i + 1}/{STEPS}]', flush=True)",
        (),
    ),
    "lines step 120/5000": Program(
        "for i in range(EPOCHS * STEPS):\n    step()\n"
        "    print(f'step {i + 1}/{EPOCHS * STEPS} loss 0.1', flush=True)",
        (),
    ),
}


Look = tuple[float, Record | None]
"""The share of the steps done, and the accepted progress then."""


def looks(program: Program, library: Path, folder: Path) -> Iterator[Look]:
    """Run a program with the monitor preloaded, and read its file like a node does."""
    file, done = folder / "output", folder / "done"
    file.write_bytes(bytes(output.FILE_BYTES))
    done.touch()
    settings = {"LD_PRELOAD": str(library), "TIRESIAS_OUTPUT_FILE": str(file), "DONE": str(done)}
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + program.script],
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    progress = output.OutputProgress()
    while process.poll() is None:
        time.sleep(LOOK_EVERY_S)
        record = progress.update(file.read_bytes(), time.time())
        yield done.stat().st_size / (EPOCHS * STEPS), record
    assert process.returncode == 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitor")
    made = make(folder, "monitor")
    assert made.returncode == 0, made.stderr
    return folder / "libtiresias_monitor.so"


def programs() -> list[object]:
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                any(importlib.util.find_spec(module) is None for module in program.needs),
                reason=f"{' or '.join(program.needs)} is not installed",
            ),
        )
        for name, program in PROGRAMS.items()
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", programs())
def test_the_progress_read_from_a_trainings_output_is_right(
    name: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LEAST_S", output.LEAST_S / FASTER)
    monkeypatch.setattr(output, "RATE_WINDOW_S", output.RATE_WINDOW_S / FASTER)
    program = PROGRAMS[name]
    believed = [(share, record) for share, record in looks(program, library, tmp_path) if record]
    print(f"\n| {name} | {f'{believed[0][0]:.0%}' if believed else '-'} |")
    if program.total is None:
        assert believed == []
        return
    assert believed
    off = 0.03 if program.fine else 0.03 + 1 / EPOCHS
    for share, record in believed:
        assert record.total == program.total
        assert abs(record.step / program.total - share) < off
