"""Photographs of the live page: a busy cluster with a real controller, in both themes.

python3 -m scripts.tools.pictures.live_page FOLDER
"""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from scripts import ROOT
from scripts.testbed import progress_channel
from scripts.testbed.ports import free_port
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController

USERS = {"alice": 20_001, "bob": 20_002, "carol": 20_003, "dmitri": 20_004, "erin": 20_005}
NODES, GPUS = 6, 8
PAGE = {"width": 1200, "height": 770}
HEIGHTS = {"page": PAGE["height"], "jobs": 425}
"""How much is shown of the top of the page, and of its table of jobs."""
SEED = 5
SETTLE_MS = 3000
WARM_UP_S = 210.0
"""The queue grows and jobs are preempted for so long before the picture is taken."""

SETTINGS: dict[str, dict[str, object]] = {
    "policy": {"thresholds_gpu_s": [72, 288, 900, 2700]},
    "preemption": {"min_run_s": 20},
    "controller": {"interval_s": 1},
}
"""Tiers that jobs of minutes come through."""

LONG = (
    ("gpt-1.3b", "alice", 16),
    ("llama-ft", "bob", 16),
    ("vit-large", "carol", 8),
    ("diffusion", "dmitri", 8),
    ("unet3d", "erin", 4),
    ("moe-8x", "bob", 24),
    ("t5-base", "carol", 4),
    ("clip-b32", "dmitri", 8),
    ("gpt-350m", "alice", 8),
)
SHORT = ("resnet50", "bert-base", "whisper-s", "rl-ppo", "lora-7b", "debug", "eval", "gnn")
LONG_S, SHORT_S = (300.0, 700.0), (25.0, 110.0)
SHORT_GPUS = (1, 1, 2, 2, 4, 8)
SHORT_EVERY_S = 5.0


def photographs() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the PNG of each picture."""
    if os.geteuid() != 0:
        raise click.ClickException("Only root can submit jobs as several users. Run it as root.")
    if shutil.which("chromium") is None:
        raise click.ClickException("There is no Chromium. Run apt-get install chromium.")
    with tempfile.TemporaryDirectory() as name:
        _run_with_users(Path(name))
        for path in sorted(Path(name).glob("*.png")):
            yield path.name, path.read_bytes()


def _run_with_users(folder: Path) -> None:
    """Run this module where ``/etc/passwd`` has the users, for its own processes only."""
    passwd = folder / "passwd"
    lines = (f"{name}:x:{uid}:65534::/:/bin/sh\n" for name, uid in USERS.items())
    passwd.write_text(Path("/etc/passwd").read_text() + "".join(lines))
    passwd.chmod(0o644)
    command = (sys.executable, "-m", "scripts.tools.pictures.live_page", str(folder))
    subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
            *('mount --bind "$0" /etc/passwd && exec "$@"', str(passwd), *command),
        ],
        cwd=ROOT,
        check=True,
    )


def main() -> None:
    """Take the pictures and put them into the folder given on the command line."""
    into = Path(sys.argv[1])
    with busy_cluster() as address:
        for theme in ("light", "dark"):
            for name, image in _photographs_of(address, theme):
                (into / f"{name}-{theme}.png").write_bytes(_small(image, HEIGHTS[name]))


@contextmanager
def busy_cluster() -> Iterator[str]:
    """Yield the address of the page of a cluster with jobs of all tiers."""
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        plugstack = progress_channel.set_up(folder)
        shutil.copy(ROOT / "scripts" / "testbed" / "saving_sleeper.py", folder)
        (folder / "jobs").mkdir()
        (folder / "jobs").chmod(0o1777)
        size = (f"--nodes={NODES}", f"--gpus={GPUS}", f"--conf-file={plugstack}")
        cluster = stack.enter_context(started_cluster(folder, *size))
        listen = f"127.0.0.1:{free_port()}"
        settings: dict[str, dict[str, object]] = {
            **SETTINGS,
            "http": {"listen": listen},
            "profiler": {"collect_dir": f"{folder}/collect"},
        }
        controller = RealController(cluster, folder, settings).start()
        stack.callback(controller.stop)
        service = progress_channel.start_service(folder, 1.0)
        stack.callback(service.wait)
        stack.callback(service.terminate)
        _keep_busy(cluster, folder)
        yield f"http://{listen}/"


def _keep_busy(cluster: RealCluster, folder: Path) -> None:
    """Submit long jobs, and short ones all the time until the page has something to show."""
    chance = random.Random(SEED)
    until_s = time.monotonic() + WARM_UP_S
    for name, user, gpus in LONG:
        _submit(cluster, folder, name, user, gpus, chance.uniform(*LONG_S))
        time.sleep(1.0)
    _submit(cluster, folder, "sweep", "erin", 1, 60.0, "--array=0-11%4")
    while time.monotonic() < until_s:
        name, user = chance.choice(SHORT), chance.choice(list(USERS))
        gpus = chance.choice(SHORT_GPUS)
        _submit(cluster, folder, name, user, gpus, chance.uniform(*SHORT_S))
        time.sleep(SHORT_EVERY_S)


def _submit(
    cluster: RealCluster,
    folder: Path,
    name: str,
    user: str,
    gpus: int,
    work_s: float,
    *options: str,
) -> None:
    nodes = -(-gpus // GPUS)
    each = gpus // nodes
    work: Sequence[object] = (
        *("python3", folder / "saving_sleeper.py", folder / progress_channel.LIBRARY, 10_000_000),
        *(f"{folder}/jobs/$SLURM_JOB_ID", round(work_s * 1e6), 1_000_000),
    )
    cluster.sbatch(
        *(f"--uid={USERS[user]}", f"--job-name={name}", f"--nodes={nodes}", "--chdir=/"),
        *(f"--gpus-per-node={each}", "--ntasks-per-node=1", "--mem=100", *options),
        script="exec " + " ".join(map(str, work)),
    )


def _photographs_of(address: str, theme: str) -> Iterator[tuple[str, bytes]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        how: dict[str, Any] = {"viewport": PAGE, "color_scheme": theme}
        tab = browser.new_context(**how).new_page()
        tab.goto(address)
        tab.locator("#jobs-table a").first.wait_for()
        tab.wait_for_timeout(SETTLE_MS)
        yield "page", tab.screenshot()
        tab.locator("#jobs").scroll_into_view_if_needed()
        _sort_by_waiting_time(tab)
        tab.wait_for_timeout(SETTLE_MS)
        yield "jobs", tab.locator("#jobs").screenshot()
        browser.close()


def _sort_by_waiting_time(tab: Any) -> None:
    """Put jobs with long waits first, so that the reasons why they wait are in the picture."""
    for _ in range(2):
        tab.locator("#jobs-table").get_by_role("button", name="Waited").click()
        if tab.locator("#jobs-table th[aria-sort=descending]").count():
            return


def _small(image: bytes, height: int) -> bytes:
    """Return the top of a picture, with a palette of 256 colours, which suffices for a page."""
    from PIL import Image

    out = io.BytesIO()
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    picture = picture.crop((0, 0, min(PAGE["width"], picture.width), height))
    picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return out.getvalue()


if __name__ == "__main__":
    main()
