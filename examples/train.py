#!/usr/bin/env python3
"""A small training loop that survives preemption and can verify that.

    train.py --steps 200 --step-seconds 0.5 --dir run1            trains, or resumes
    train.py --steps 200 --dir run1 --verify                      verifies every step

It saves a checkpoint every few seconds, on SIGUSR1 (save and continue) and on SIGTERM (save and
exit), and resumes from it by itself.  Next to the checkpoint it keeps a journal, to which it adds
a line for every start and every step, and from which it never removes one.  ``--verify`` reads
this journal, trains again from the start, and compares the two step by step.

It needs only Python's standard library.  The GPUs are requested from Slurm by the user; the loop
itself uses none.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FEATURES = 4
TRUE_WEIGHTS = (0.5, -1.5, 2.0, 0.25)
BATCH = 16
LEARNING_RATE = 0.1

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAVE_SIGNAL = signal.SIGUSR1
SIGNALS = (*STOP_SIGNALS, SAVE_SIGNAL)

EXIT_NOT_PROVEN = 1
EXIT_USAGE = 2
EXIT_IN_USE = 75
"""EX_TEMPFAIL: another instance trains in this folder."""
EXIT_SIGNAL = 128
"""Plus the signal's number, as a shell reports it."""


class TrainError(Exception):
    """An error that a person must solve."""


class InUseError(TrainError):
    """Another instance trains in this folder."""


# ---------------------------------------------------------------------------------------------
# The training: a linear model fitted by stochastic gradient descent


@dataclass(frozen=True)
class Model:
    """The state after ``step`` steps.  ``fingerprint`` depends on every step ever applied."""

    seed: int
    step: int = 0
    weights: tuple[float, ...] = (0.0,) * FEATURES
    fingerprint: str = ""


def trained(model: Model) -> Model:
    """The model one step later."""
    step = model.step + 1
    weights = descended(model.weights, batch(model.seed, step))
    text = ",".join([model.fingerprint, str(step), *(weight.hex() for weight in weights)])
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Model(model.seed, step, weights, fingerprint)


Example = tuple[tuple[float, ...], float]


def batch(seed: int, step: int) -> list[Example]:
    """The examples of one step: the same whenever and wherever the step is done.

    Nothing but uniform numbers, sums and products: a job may resume on another kind of machine,
    whose logarithm differs in the last bit.
    """
    source = random.Random(f"{seed}/{step}")
    examples = []
    for _ in range(BATCH):
        inputs = tuple(source.uniform(-1, 1) for _ in range(FEATURES))
        noise = source.uniform(-0.1, 0.1)
        examples.append((inputs, predicted(TRUE_WEIGHTS, inputs) + noise))
    return examples


def predicted(weights: Sequence[float], inputs: Sequence[float]) -> float:
    return sum(weight * x for weight, x in zip(weights, inputs, strict=True))


def descended(weights: tuple[float, ...], examples: Sequence[Example]) -> tuple[float, ...]:
    errors = [predicted(weights, inputs) - target for inputs, target in examples]
    slope = [
        sum(error * inputs[i] for error, (inputs, _) in zip(errors, examples, strict=True))
        for i in range(FEATURES)
    ]
    return tuple(
        weight - LEARNING_RATE * part / len(examples)
        for weight, part in zip(weights, slope, strict=True)
    )


# ---------------------------------------------------------------------------------------------
# What lies in the folder


class Folder:
    """The checkpoint, the journal and the lock of one training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.json"
        self.journal = path / "journal.jsonl"
        self.lock = path / "lock"


def lock(folder: Folder) -> int:
    """Lock the folder while this process lives; the kernel frees it however it ends."""
    folder.path.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InUseError(
            f"another instance trains in {folder.path}. Wait for it, or name another --dir."
        ) from error
    return handle


def write_atomically(path: Path, text: str) -> None:
    """Replace a file atomically, even if the power fails: it has the old text or the new."""
    draft = path.with_name(path.name + ".new")
    with draft.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(folder: Folder, seed: int) -> Model:
    """The model of the last checkpoint, or a new one."""
    try:
        raw = json.loads(folder.checkpoint.read_text(encoding="utf-8"))
        weights = tuple(float.fromhex(weight) for weight in raw["weights"])
        model = Model(raw["seed"], raw["step"], weights, raw["fingerprint"])
    except FileNotFoundError:
        return Model(seed)
    except (ValueError, KeyError, TypeError) as error:
        raise TrainError(
            f"{folder.checkpoint} is no checkpoint ({error}). Remove it to start from nothing."
        ) from error
    if model.seed != seed:
        raise TrainError(
            f"{folder.path} holds a training with --seed {model.seed}. Name that, or another --dir."
        )
    return model


def save(folder: Folder, model: Model) -> None:
    raw = asdict(model) | {"weights": [weight.hex() for weight in model.weights]}
    write_atomically(folder.checkpoint, json.dumps(raw) + "\n")


class Journal:
    """One line of JSON for every event; lines are added, never changed."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._cut_torn_line(path)

    def _cut_torn_line(self, path: Path) -> None:
        """Ignore a line whose writer was killed in the middle of it: its step was not done."""
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.ftruncate(self._handle, whole)

    def add(self, event: str, **values: Any) -> None:
        # One write, unbuffered: a kill leaves all of the line or, at worst, a torn last one.
        os.write(self._handle, (json.dumps({"event": event, **values}) + "\n").encode())

    def sync(self) -> None:
        os.fsync(self._handle)


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """Return the complete lines of a journal; raise ``ValueError`` at any other line."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        entry = json.loads(line)
        if not isinstance(entry, dict):
            raise ValueError(f"{line!r} is no entry")
        yield entry


# ---------------------------------------------------------------------------------------------
# The loop


class Training:
    """One run of a training: from the last checkpoint to its end or its preemption."""

    def __init__(self, folder: Folder, model: Model, save_every_s: float) -> None:
        self.folder = folder
        self.model = model
        self.save_every_s = save_every_s
        self.journal = Journal(folder.journal)
        self.last_saved_s = time.monotonic()

    def run(self, steps: int, step_s: float) -> signal.Signals | None:
        """Trains up to ``steps``; returns the signal that ended it before that."""
        self.journal.add("start", step=self.model.step, at_s=time.time(), **slurm_says())
        say(f"from step {self.model.step} of {steps}")
        while self.model.step < steps:
            after = trained(self.model)
            if stop := self.work(step_s):
                return self.leave(stop)
            self.model = after
            self.journal.add("step", step=after.step, fingerprint=after.fingerprint)
            if time.monotonic() - self.last_saved_s >= self.save_every_s:
                self.save("time")
        self.save("finished")
        self.journal.add("end", step=self.model.step, why="finished", at_s=time.time())
        return None

    def work(self, seconds: float) -> signal.Signals | None:
        """Simulate the work of one step.  A signal is handled at once, in the middle of it.

        The signals are blocked all the time and only taken here, so that none can come between a
        step and its line in the journal, and none is missed.
        """
        until_s = time.monotonic() + seconds
        while (caught := take_signal(until_s - time.monotonic())) is not None:
            if caught in STOP_SIGNALS:
                return caught
            self.save(caught.name)
        return None

    def leave(self, stop: signal.Signals) -> signal.Signals:
        self.save(stop.name)
        self.journal.add("end", step=self.model.step, why=stop.name, at_s=time.time())
        return stop

    def save(self, why: str) -> None:
        # The journal first: a checkpoint must never know of a step that the journal has lost.
        self.journal.sync()
        save(self.folder, self.model)
        self.journal.add("saved", step=self.model.step, why=why)
        self.last_saved_s = time.monotonic()
        say(f"saved at step {self.model.step} ({why})")


def take_signal(timeout_s: float) -> signal.Signals | None:
    caught = signal.sigtimedwait(SIGNALS, max(timeout_s, 0.0))
    return signal.Signals(caught.si_signo) if caught else None


def block_signals() -> None:
    """Block signals from now on; ``take_signal`` accepts them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        # A signal that the caller ignored (`trap '' USR1`) would be thrown away, not kept.
        signal.signal(number, signal.SIG_DFL)


def slurm_says() -> dict[str, str]:
    names = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST")
    return {name.lower(): os.environ[name] for name in names if name in os.environ}


def say(text: str) -> None:
    print(f"train: {text}", flush=True)


# ---------------------------------------------------------------------------------------------
# The proof


@dataclass
class Proof:
    """``steps_redone`` counts steps that were lost by a kill and repeated since.

    They leave no trace in the model, which still contains every step exactly once.  After a SIGTERM
    there are none.
    """

    steps: int = 0
    restarts: int = 0
    steps_redone: int = 0
    each_step_once: bool = False
    fingerprint: str = ""
    problems: list[str] = field(default_factory=list)


def prove(folder: Folder, steps: int, seed: int) -> Proof:
    """Reads the journal from start to start and compares each step with a repeated one."""
    proof = Proof(restarts=-1)
    models = anew(seed, steps)
    try:
        for entry in read_journal(folder.journal):
            follow(proof, entry, models)
        check_end(proof, load(folder, seed), models)
    except FileNotFoundError:
        proof.problems.append(f"there is no {folder.journal}")
    except (ValueError, KeyError, TypeError, TrainError) as error:
        proof.problems.append(f"cannot be read: {error}")
    proof.restarts = max(proof.restarts, 0)
    proof.each_step_once = not proof.problems
    return proof


def anew(seed: int, steps: int) -> list[Model]:
    """Yield the models after 0, 1, 2, ... steps, trained without interruption or journal."""
    models = [Model(seed)]
    for _ in range(steps):
        models.append(trained(models[-1]))
    return models


def follow(proof: Proof, entry: dict[str, Any], models: Sequence[Model]) -> None:
    if entry["event"] == "start":
        follow_start(proof, int(entry["step"]))
    elif entry["event"] == "step":
        follow_step(proof, int(entry["step"]), str(entry["fingerprint"]), models)


def follow_start(proof: Proof, step: int) -> None:
    proof.restarts += 1
    if step > proof.steps:
        proof.problems.append(f"resumed from step {step} when {proof.steps} were done")
    proof.steps_redone += max(proof.steps - step, 0)
    proof.steps = step


def follow_step(proof: Proof, step: int, fingerprint: str, models: Sequence[Model]) -> None:
    if step != proof.steps + 1:
        proof.problems.append(f"step {step} was done after step {proof.steps}")
    elif step >= len(models):
        proof.problems.append(f"step {step} was one too many")
    elif fingerprint != models[step].fingerprint:
        proof.problems.append(f"step {step} gave another model than it should")
    proof.steps = step


def check_end(proof: Proof, saved: Model, models: Sequence[Model]) -> None:
    proof.fingerprint = saved.fingerprint
    if proof.steps != len(models) - 1:
        proof.problems.append(f"{proof.steps} of {len(models) - 1} steps were done")
    if saved != models[-1]:
        proof.problems.append("the saved model is not the one that the steps lead to")


# ---------------------------------------------------------------------------------------------
# The command line


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(description="A small training loop that survives preemption.")
    job = os.environ.get("SLURM_JOB_ID", "local")
    add = whole.add_argument
    add("--steps", type=whole_number, default=100, help="steps in all (default: 100)")
    add("--step-seconds", type=seconds, default=0.1, help="length of a step (default: 0.1)")
    add("--dir", type=Path, default=Path(f"train-{job}"), help="default: train-$SLURM_JOB_ID")
    add("--save-every-s", type=seconds, default=10.0, help="between checkpoints (default: 10)")
    add("--seed", type=int, default=1, help="of the data (default: 1)")
    add("--verify", action="store_true", help="train nothing, prove what was done")
    return whole


def whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds")
    return value


def train(options: argparse.Namespace, folder: Folder) -> int:
    block_signals()
    held = lock(folder)
    try:
        model = load(folder, options.seed)
        stop = Training(folder, model, options.save_every_s).run(
            options.steps, options.step_seconds
        )
    finally:
        os.close(held)
    return EXIT_SIGNAL + stop if stop else verify(options, folder)


def verify(options: argparse.Namespace, folder: Folder) -> int:
    proof = prove(folder, options.steps, options.seed)
    print(json.dumps(asdict(proof)), flush=True)
    return 0 if proof.each_step_once else EXIT_NOT_PROVEN


def main() -> int:
    options = parser().parse_args()
    folder = Folder(options.dir)
    try:
        return verify(options, folder) if options.verify else train(options, folder)
    except InUseError as error:
        print(f"train: error: {error}", file=sys.stderr)
        return EXIT_IN_USE
    except (TrainError, OSError) as error:
        print(f"train: error: {error}", file=sys.stderr)
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
