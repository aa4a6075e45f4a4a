"""Programs as users write them: what the drill must find in each, or that it must find nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.drill.jobs import BASE, PYTHON

HANDLES = BASE + "signal.signal(signal.SIGTERM, tell)\n"

LOOP = (
    HANDLES
    + """
def store(step):
    draft = Path(f"{CHECKPOINT}.new")
    draft.write_text(json.dumps({"step": step}))
    draft.replace(CHECKPOINT)


def loop(say=None, seconds=0.1, save=store, saved="", before=None, step=load()):
    while True:
        before and print(before.format(step), flush=True)
        time.sleep(seconds)
        step += 1
        say and say(step)
        if told:
            save(step)
            saved and print(saved.format(step), flush=True)
            sys.exit(1)


"""
)
"""A program with its own way of printing, which is what it says after each step."""

EPOCHS = LOOP + 'say = lambda step: print(f"Epoch {step}/90: loss 0.31", flush=True)\n'
RESUMED = LOOP + 'print(f"resumed at step {load()}", flush=True)\n'

LIBRARY = """
import os, sys, time
from pathlib import Path
from slurm_tiresias import job

PATH = Path(f"model-{os.environ['SLURM_JOB_ID']}")


def save(step):
    time.sleep(0.3)
    with job.writing(PATH, "w") as file:
        file.write(str(step))


def load():
    return int(PATH.read_text()) if PATH.exists() else 0


"""
STEPS = "for _ in job.steps(9000, save, load()):\n    time.sleep(0.1)\n"


@dataclass(frozen=True)
class Program:
    """A Python program, the shell lines around it, and the causes that it may get."""

    text: str
    finds: tuple[str, ...] = ()
    runs: str = "exec {python} {program}"
    options: str = ""
    unknown: bool = False
    """Whether nothing that it shows proves that it is healthy."""

    def write(self, name: str, folder: Path) -> Path:
        """Write the program into a folder; return its batch script."""
        program, script = folder / f"{name}.py", folder / f"{name}.sh"
        program.write_text(self.text)
        run = self.runs.format(python=PYTHON, program=program)
        options = self.options or "--ntasks=1"
        mode = "" if "--open-mode" in options else "--open-mode=append"
        script.write_text(f"#!/bin/bash\n#SBATCH --mem=50 {options} {mode}\n{run}\n")
        return script


BROKEN: Mapping[str, Program] = {
    "rewrites-metrics": Program(
        HANDLES
        + """
def metrics(step):
    Path(f"metrics-{JOB}.new").write_text(str(step))
    os.replace(f"metrics-{JOB}.new", f"metrics-{JOB}")
    if told:
        sys.exit(1)


train(save=lambda step: None, before=metrics)
""",
        ("not-saved",),
    ),
    "says-it-resumed": Program(
        HANDLES + 'print(f"resumed at step {load()}", flush=True)\ntrain(done=0)',
        ("resumed-from-nothing",),
    ),
    "forty-ahead": Program(
        HANDLES
        + """
def ahead(step):
    CHECKPOINT.write_text(json.dumps({"step": step + 40}))
    print(f"saved step {step}", flush=True)


train(save=ahead)
""",
        ("steps-skipped",),
    ),
    "says-only-that-it-resumed": Program(
        LOOP
        + 'print(f"resumed at step {load()}", flush=True)\nloop(saved="saved step {}", step=0)',
        ("resumed-earlier", "resumed-from-nothing"),
    ),
    "always-step-5": Program(
        HANDLES
        + """
def same(step):
    CHECKPOINT.write_text(json.dumps({"step": 5}))
    print(f"saved step {step}", flush=True)


train(save=same)
""",
        ("resumed-earlier", "steps-skipped"),
    ),
    "own-tmpdir": Program(
        HANDLES + "train()",
        ("resumed-from-nothing", "other-node"),
        runs="cd $(mktemp -d)\nexec {python} {program}",
    ),
    "only-rank-0": Program(
        LOOP
        + """
rank = int(os.environ["SLURM_PROCID"])
if rank:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def meet(step):
    Path(f"barrier-{JOB}-{rank}").write_text(str(step))
    # Rank 0 waits here nearly all the time.
    while int(Path(f"barrier-{JOB}-{1 - rank}").read_text() or 0) < step:
        time.sleep(0.02)
    rank == 0 and print("step", step, flush=True)


loop(meet, seconds=0.1 * rank)
""",
        ("no-handler",),
        runs="for r in 0 1; do echo 0 > barrier-$SLURM_JOB_ID-$r; done\n"
        "exec srun {python} {program}",
        options="--ntasks=2",
    ),
    "stubborn-worker": Program(
        HANDLES
        + """
def work_on():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(0.1)


worker = get_context("fork").Process(target=work_on)
worker.start()
train()
""",
        ("stayed",),
    ),
    "deletes-first": Program(
        HANDLES
        + """
def slow(step):
    CHECKPOINT.unlink(missing_ok=True)
    save(step, seconds=40)


CHECKPOINT.exists() or CHECKPOINT.write_text('{"step": 0}')
train(save=slow)
""",
        # It may delete its first checkpoint before anything has seen that.
        ("deleted-first", "save-too-long"),
    ),
    "truncates-output": Program(
        HANDLES + "train()", ("output-emptied",), options="--open-mode=truncate"
    ),
    "ignores": Program(BASE + "signal.signal(15, signal.SIG_IGN)\ntrain()", ("ignored",)),
    "trips-over-its-lock": Program(
        HANDLES + 'open(f"lock-{JOB}", "x")\ntrain()', ("did-not-come-back",)
    ),
    "tied-to-its-host": Program(
        HANDLES
        + """
mine = Path(f"host-{JOB}")
mine.exists() or mine.write_text(os.environ["SLURMD_NODENAME"])
assert mine.read_text() == os.environ["SLURMD_NODENAME"], "the GPUs of another host"
train()
""",
        ("did-not-come-back",),
    ),
    "saves-at-epoch-ends": Program(
        LOOP
        + """
def epochs(step):
    print(f"Epoch [{step // 30 + 1}/90], Step [{step % 30 + 1}/30], Loss: 0.4", flush=True)
    if step % 30 == 0:
        store(step)
        print(f"Saved checkpoint: epoch {step // 30}", flush=True)


loop(epochs, seconds=0.15, save=lambda step: None)
""",
        ("not-saved",),
    ),
    "bar-from-its-last-save": Program(
        LOOP
        + """
print("***** Running training *****\\n  Num Epochs = 20\\n  Total optimization steps = 400")


def bar(step):
    print(f"\\r {step // 4}%|##  | {step}/400 [00:05<00:40,  8.7it/s]", end="\\r", flush=True)
    if step % 25 == 0:
        store(step)
        print(f"\\nSaving model checkpoint to out/checkpoint-{step}", flush=True)


loop(bar, save=lambda step: None)
""",
        ("not-saved",),
    ),
    "library-with-a-new-name": Program(
        LIBRARY + 'PATH = Path(f"model-{time.time()}")\n' + STEPS, ("resumed-from-nothing",)
    ),
    "saves-before-it-loads": Program(
        BASE
        + """
step = 0


def leave(number, frame):
    save(step, seconds=0.0)
    os._exit(1)


signal.signal(signal.SIGTERM, leave)
time.sleep(4)
step = load()
print("resumed at step", step, flush=True)
while True:
    work(step + 1)
    step += 1
""",
        ("overwritten",),
    ),
    "library-one-ahead": Program(
        LIBRARY + STEPS.replace("load()", "load() and load() + 1"), ("steps-skipped",)
    ),
    "counts-in-bash": Program(
        "", ("no-handler",), runs="for n in $(seq 900); do sleep 0.3; echo step $n; done"
    ),
    "pipe-to-tee": Program(
        HANDLES + "train()",
        ("output-pipe",),
        runs="{python} {program} 2>&1 | tee -a tee-$SLURM_JOB_ID.txt",
    ),
}

HEALTHY: Mapping[str, Program] = {
    "library": Program(LIBRARY + STEPS),
    "quick-and-quiet": Program(LOOP + 'loop(lambda step: print("step", step, flush=True))'),
    "appends-to-its-own-log": Program(
        HANDLES + "train()", runs="exec {python} {program} >> mine-$SLURM_JOB_ID.txt 2>&1"
    ),
    "epochs-only": Program(EPOCHS + 'loop(say, seconds=0.4, saved="saved epoch {}")'),
    "epochs-only-quiet": Program(EPOCHS + "loop(say, seconds=0.4)", unknown=True),
    "bars-like-lightning": Program(
        LOOP
        + """
def bars(step):
    epoch, batch = divmod(step - 1, 12)
    if batch == 0:
        print("\\rValidation DataLoader 0:  50%|##| 2/4 [00:00<00:00]", end="\\r", flush=True)
    bar = f"Epoch {epoch}:  {8 * batch}%|##    | {batch + 1}/12 [00:00<00:01,  9.80it/s, v_num=0]"
    print(f"\\r{bar}", end="\\r", flush=True)


loop(bars)
"""
    ),
    "epoch-and-batch": Program(
        LOOP
        + """
def batches(step):
    epoch, batch = divmod(step - 1, 10)
    print(f"Epoch [{epoch + 1}/90], Step [{batch + 1}/10], Loss: 0.4", flush=True)


def save(step):
    epoch, batch = divmod(step - 1, 10)
    store(step)
    print(f"Saved checkpoint: epoch {epoch} batch {batch}", flush=True)


loop(batches, save=save)
"""
    ),
    "like-hugging-face": Program(
        LOOP
        + """
print("***** Running training *****\\n  Num examples = 1,600\\n  Num Epochs = 20")
print("  Gradient Accumulation steps = 1\\n  Total optimization steps = 400", flush=True)
if load():
    print(f"  Continuing training from global step {load()}", flush=True)
print(f"\\r  0%|   | 0/400 [00:00<?, ?it/s]", end="\\r", flush=True)


def bar(step):
    print(f"\\r {step // 4}%|##  | {step}/400 [00:05<00:40,  8.7it/s]", end="\\r", flush=True)
    if step % 10 == 0:
        print({"loss": 0.4, "epoch": step / 20}, flush=True)


def save(step):
    print(f"\\nSaving model checkpoint to out/checkpoint-{step}", flush=True)
    store(step)


loop(bar, save=save)
"""
    ),
    "slow-imports": Program("import time; time.sleep(4)\n" + HANDLES + "train()"),
    "bash-and-tiresias-job": Program(
        LIBRARY + STEPS, runs="{python} -m slurm_tiresias.job.command run -- {python} {program}"
    ),
    "two-ranks": Program(
        LOOP
        + """
rank = int(os.environ["SLURM_PROCID"])


def save(step):
    rank == 0 and store(step)
    time.sleep(0.3)


loop(lambda step: rank == 0 and print("iter", step, "loss 0.2", flush=True), save=save)
""",
        runs="exec srun {python} {program}",
        options="--ntasks=2",
    ),
    "each-tenth-step": Program(
        RESUMED
        + """
def tenths(step):
    step % 10 or print(f"step {step}: loss 0.4", flush=True)


loop(tenths, seconds=0.03, saved="saved step {}")
"""
    ),
    "says-only-saves": Program(RESUMED + 'loop(saved="saved step {}")'),
    "json-lines": Program(
        LOOP
        + """
print(json.dumps({"batch": 32, "max_steps": 400, "steps": 400}), flush=True)
loop(lambda n: print(json.dumps({"epoch": n / 50, "step": n, "loss": 0.3}), flush=True))
"""
    ),
    "saves-each-step": Program(BASE + "train(before=lambda step: save(step, seconds=0.0))"),
    "in-a-trap": Program(
        HANDLES + "train()",
        runs="trap 'kill -TERM $child' TERM\n{python} {program} &\nchild=$!\nwait\nwait\nexit 1",
    ),
    "names-steps-that-it-starts": Program(LOOP + 'loop(seconds=0.2, before="starting step {}")'),
    "counts-from-zero": Program(LOOP + 'loop(before="iteration {}/9000")'),
}
