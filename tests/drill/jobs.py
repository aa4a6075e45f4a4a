"""Small jobs, each with a different flaw at preemption, and one without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurm_tiresias.job.record import RECORD_BYTES

PYTHON = "/usr/bin/python3"
"""A Python that every user can run."""

BASE = """
import json, os, signal, subprocess, sys, time
from multiprocessing import get_context
from pathlib import Path

JOB = os.environ["SLURM_JOB_ID"]
CHECKPOINT = Path(f"checkpoint-{JOB}.json")
told = False


def tell(number, frame):
    global told
    told = True


def load(path=CHECKPOINT):
    try:
        return json.loads(path.read_text())["step"]
    except (OSError, ValueError):
        return 0


def save(step, seconds=0.2, path=CHECKPOINT):
    print(f"saving step {step}", flush=True)
    with open(f"{path}.tmp", "w") as file:
        time.sleep(seconds)
        file.write(json.dumps({"step": step}))
    os.replace(f"{path}.tmp", path)
    print(f"saved step {step}", flush=True)


def work(step):
    end_s = time.monotonic() + 0.1
    while time.monotonic() < end_s:
        time.sleep(0.01)
        sum(range(20000))
    print(f"step {step}", flush=True)


def train(save=save, done=None, before=lambda step: None):
    step = load() if done is None else done
    print(f"resumed at step {step}", flush=True)
    while True:
        before(step)
        work(step + 1)
        step += 1
        if told:
            save(step)
            raise SystemExit(1)


"""

GOOD = "signal.signal(signal.SIGTERM, tell)\n"

PROGRAMS: Mapping[str, str] = {
    "good": GOOD + "train()",
    "no-handler": "train(before=lambda step: step % 5 == 4 and save(step))",
    "handler-in-parent-only": """
if len(sys.argv) > 1:
    train(before=lambda step: step % 5 == 4 and save(step))
child = subprocess.Popen([sys.executable, __file__, "child"])
signal.signal(signal.SIGTERM, tell)
child.wait()
time.sleep(0.5)
""",
    "workers-killed": GOOD
    + """
def batches(pipe):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        pipe.send("batch")
        time.sleep(0.02)


def fetch(step):
    if not worker.is_alive():
        raise RuntimeError("the worker was killed")
    while here.poll():
        here.recv()


def save_with_the_worker(step):
    time.sleep(0.3)
    fetch(step)
    save(step)


here, there = get_context("fork").Pipe()
worker = get_context("fork").Process(target=batches, args=(there,), daemon=True)
worker.start()
train(save=save_with_the_worker, before=fetch)
""",
    "launcher-killed": """
def slow(step):
    save(step, seconds=300)


if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, tell)
    train(save=slow)
workers = [subprocess.Popen([sys.executable, __file__, str(rank)]) for rank in range(2)]
signal.signal(signal.SIGTERM, tell)
while not told:
    time.sleep(0.05)
# As torch.distributed.elastic does: PContext.close(), 30 s, SIGKILL.
for worker in workers:
    worker.terminate()
end_s = time.monotonic() + 30
while time.monotonic() < end_s and any(worker.poll() is None for worker in workers):
    time.sleep(0.05)
for worker in workers:
    worker.kill()
    worker.wait()
time.sleep(0.3)
sys.exit(1)
""",
    "save-too-long": GOOD + "train(save=lambda step: save(step, seconds=120))",
    "save-torn": """
def in_place(step):
    print(f"saving step {step}", flush=True)
    with open(CHECKPOINT, "w") as file:
        time.sleep(1.5)
        file.write(json.dumps({"step": step}))
    print(f"saved step {step}", flush=True)


def at_once(number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tell(number, frame)


signal.signal(signal.SIGTERM, at_once)
train(save=in_place)
""",
    "resumed-from-nothing": GOOD
    + """
path = Path(f"checkpoint-{JOB}-{time.time():.0f}.json")
train(save=lambda step: save(step, path=path), done=load(path))
""",
    "other-node": GOOD
    + """
path = Path("/tmp") / f"drill-{JOB}-{os.environ['SLURMD_NODENAME']}"
train(save=lambda step: save(step, path=path), done=load(path))
""",
    "steps-skipped": GOOD + "train(done=load() and load() + 40)",
    "new-log": GOOD
    + """
log = open(f"train-{JOB}-{time.time():.0f}.log", "w")
train(before=lambda step: print("step", step, file=log, flush=True))
""",
    "new-tracker-run": GOOD
    + """
folder = Path(f"run-{JOB}/wandb/offline-run-{time.strftime('%Y%m%d_%H%M%S')}-{os.urandom(4).hex()}")
folder.mkdir(parents=True)
log = open(folder / "run.wandb", "w")
train(before=lambda step: print("step", step, file=log, flush=True))
""",
    "survivor": GOOD
    + """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "600"])
    os._exit(0)
os.wait()
train()
""",
}


LIBRARY = """
import os, time
from pathlib import Path
from slurm_tiresias import job

CHECKPOINT = Path(f"checkpoint-{os.environ['SLURM_JOB_ID']}")


def save(step):
    time.sleep(0.2)
    with job.writing(CHECKPOINT, "w") as file:
        file.write(str(step))


done = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
for _ in job.steps(100_000, save, done):
    time.sleep(0.05)
"""
"""The job without a flaw: it reports, and saves when it is asked to."""


def write(name: str, folder: Path) -> Path:
    """Write the job of this name into a folder; return its batch script."""
    return write_program(name, BASE + PROGRAMS[name], folder)


LIKE_THE_PLUGIN = f"""\
export TIRESIAS_PROGRESS_FILE=$PWD/progress-$SLURM_JOB_ID
head -c {RECORD_BYTES} /dev/zero > $TIRESIAS_PROGRESS_FILE
"""
"""Gives the job a progress file that is not the drill's."""


def write_program(name: str, text: str, folder: Path, before: str = "") -> Path:
    """Write a program as a job into a folder; return its batch script."""
    program = folder / f"{name}.py"
    program.write_text(text)
    script = folder / f"{name}.sh"
    head = "#!/bin/bash\n#SBATCH --ntasks=1 --mem=100 --open-mode=append\n"
    script.write_text(f"{head}{before}exec {PYTHON} {program}\n")
    return script
