"""The command line, and its course from a bare machine to the tests' result."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import docker
from docker.errors import DockerException, ImageNotFound

from scripts.containers_lib import engine, image, tools
from scripts.matrix_lib import machine
from scripts.matrix_lib.suite import read_report
from scripts.package_lib.roots import RootError, base_root

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXPECTED_ERRORS = (
    engine.EngineError,
    image.ImageError,
    tools.ToolsError,
    RootError,
    DockerException,
)


def run(description: str) -> int:
    options, pytest = _parser(description).parse_known_args()
    for number in STOPPING_SIGNALS:
        signal.signal(number, _stop_once)
    began_s = time.monotonic()
    try:
        good = _run(options, pytest)
    except EXPECTED_ERRORS as error:
        _say(f"error: {error}")
        good = False
    except KeyboardInterrupt:
        _say("stopped, and cleared away")
        return 130
    _say(f"{'the containers do as they should' if good else 'FAILED'}: {_since(began_s)}")
    return 0 if good else 1


def _stop_once(_number: int, _frame: FrameType | None) -> NoReturn:
    # Once is enough: what follows is the clearing away.
    for each in STOPPING_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parser(description: str) -> argparse.ArgumentParser:
    what, _, more = description.partition("\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--own", action="store_true", help="an engine of its own in any case")
    parser.add_argument("--fresh", action="store_true", help="make the image anew")
    parser.add_argument(
        "--cache", type=Path, default=home / "slurm-tiresias-roots", help="default: %(default)s"
    )
    return parser


def _run(options: argparse.Namespace, pytest: Sequence[str]) -> bool:
    if not options.own and _is_reachable():
        _say("the Docker engine of this machine")
        return suite_is_good({}, pytest)
    missing = tools.missing_packages()
    with _step(f"tools: {', '.join(missing) or 'all there'}"):
        tools.install(missing)
    with machine.alone_with(options.cache / "containers.lock", _say):
        return _on_own_engine(options, pytest)


def _is_reachable() -> bool:
    try:
        return bool(docker.from_env().ping())
    except DockerException:
        return False


def _on_own_engine(options: argparse.Namespace, pytest: Sequence[str]) -> bool:
    images = options.cache.resolve() / "containers"
    if options.fresh:
        shutil.rmtree(images, ignore_errors=True)
    with engine.running(images, cut_off=False) as own:
        _make_image(own.client, options.cache)
    # From here on nothing is fetched, and the engine has a network of its own.
    with engine.running(images, cut_off=True) as own:
        # The builder that every engine has; it finds the image made before.
        return suite_is_good({"DOCKER_HOST": own.address, "DOCKER_BUILDKIT": "0"}, pytest)


def _make_image(client: docker.DockerClient, cache: Path) -> None:
    try:
        client.images.get(image.base_image())
    except ImageNotFound:
        with _step(f"Debian {image.BASE_SUITE}, as {image.base_image()}"):
            image.import_base(client, base_root(image.BASE_SUITE, cache))
    proxies = {
        name: value
        for name, value in machine.fetching_environment().items()
        if name.lower().endswith("_proxy")
    }
    with _step("the image"):
        for step in image.build(client, proxies):
            _say(f"  {' '.join(step.split())[:80]}")


def suite_is_good(environment: dict[str, str], pytest: Sequence[str]) -> bool:
    """Run the tests; whether there were some, all were good, and none was skipped."""
    with tempfile.TemporaryDirectory() as folder, _step("the tests"):
        report = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-v", "-m", "containers", f"--junitxml={report}"]
        ended = subprocess.run(
            [*command, "tests/containers", *pytest],
            cwd=image.ROOT,
            env={**os.environ, **environment},
            check=False,
        )
        if not report.exists():
            return False
        _, _, skipped = read_report(report)
    for reason, count in skipped:
        _say(f"{count} skipped: {reason}")
    return ended.returncode == 0 and not skipped


@contextmanager
def _step(name: str) -> Iterator[None]:
    began_s = time.monotonic()
    _say(name)
    yield
    _say(f"  done in {_since(began_s)}")


def _since(began_s: float) -> str:
    return f"{time.monotonic() - began_s:.0f} s"


def _say(text: str) -> None:
    print(f"test-containers: {text}", file=sys.stderr, flush=True)
