"""The sampler on a compute node: it periodically samples what profiled jobs do with their GPUs.

The SPANK plugin keeps a file for every profiled run on its node, from prolog to epilog, and makes
the job's user its owner. So the names of these files say which jobs are profiled, and their owners
say whose processes are trusted. A GPU belongs to a job if one of the job's processes computes on
it. GPU indices are not used, since they depend on the process that asks.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.errors import AlreadyRunningError, TiresiasError
from slurm_tiresias.profiler.gpu_runs import MOST_GPUS, GpuSums, file_text
from slurm_tiresias.profiler.gpu_use import gpus_at_work
from slurm_tiresias.profiler.processes import Claim, claim_of
from slurm_tiresias.profiler.run_id import (
    GPUS_KIND,
    TRAFFIC_KIND,
    RunId,
    parsed_file_name,
)
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

MOST_UNWRITTEN = 1000
"""Most runs whose files are waiting to be written; beyond that the oldest are dropped."""

LOCK_NAME = "sampler.lock"
"""The lock file in the run folder; neither the plugin nor the sampler takes it for a job's file."""

_RUN_REMEDY = "Give --run as in plugstack.conf, and run this as root"
_STOP = frozenset({signal.SIGTERM, signal.SIGINT})


class SamplerFolderError(TiresiasError):
    """A folder that the sampler works in is missing, or another user's."""

    exit_code = 10


def run(run_dir: Path, collect_dir: Path, every_s: float) -> None:
    """Sample until a signal stops it.

    Samples of jobs that are still running are then lost: the next sampler starts anew, so that a
    run never has two files.
    """
    if not _may_write_into(collect_dir):
        raise SamplerFolderError(
            f"The folder {collect_dir} is not there, or may not be written to",
            "Give --collect as in plugstack.conf, and see that it is mounted",
        )
    with _folder_locked(run_dir), _signals_held():
        sampler = Sampler(run_dir, collect_dir)
        log.info("samples the GPUs of profiled jobs in %s every %g s", run_dir, every_s)
        stopping = False
        while not stopping:
            stopping = signal.sigtimedwait(_STOP, every_s) is not None
            sampler.tick(time.monotonic())
        log.info("stopped")


@contextmanager
def _signals_held() -> Iterator[None]:
    """Block signals for ``sigtimedwait``: none interrupts a tick, and none is missed in a sleep."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Sampler:
    """Samples the GPUs of profiled jobs, and writes a file for each job once it is over."""

    def __init__(self, run_dir: Path, collect_dir: Path) -> None:
        self._run_dir = run_dir
        self._collect_dir = collect_dir
        self._sums: dict[RunId, dict[str, GpuSums]] = {}
        self._warning = WarnOnce("what jobs do with their GPUs cannot be kept for now")
        self._has_driver = True

    def tick(self, now_s: float) -> None:
        """Sample every job once, and write the files of jobs that are over."""
        try:
            owners = profiled(self._run_dir)
            if owners:
                self._sample(owners, now_s)
            self._write_all_but(owners)
        except OSError as error:
            self._warning.warn(error)
        else:
            self._warning.clear()

    def _sample(self, owners: Mapping[RunId, int], now_s: float) -> None:
        gpus = gpus_at_work()
        has_driver = gpus is not None
        if has_driver != self._has_driver:
            absent = "without NVML (nvidia-ml-py and the driver) nothing is sampled"
            log.warning("NVML is there again" if has_driver else absent)
        self._has_driver = has_driver
        jobs = _by_claim(owners)
        for gpu in gpus or ():
            uuid = gpu.use.uuid
            if uuid is None:
                continue  # lost this very moment
            # A GPU shared by several profiled runs counts for each of them.
            claims = {claim_of(pid) for pid in gpu.pids}
            for run_id in {run_id for claim in claims if claim for run_id in jobs.get(claim, ())}:
                sums = self._sums.setdefault(run_id, {})
                if uuid in sums or len(sums) < MOST_GPUS:
                    sums.setdefault(uuid, GpuSums(uuid, now_s)).add(gpu.use, now_s)

    def _write_all_but(self, running: Iterable[RunId]) -> None:
        """Write the files of finished runs; if one cannot be written, retry at the next tick."""
        over = sorted(self._sums.keys() - set(running))
        for run_id in over[:-MOST_UNWRITTEN]:
            del self._sums[run_id]
        for run_id in over[-MOST_UNWRITTEN:]:
            text = file_text(sums.run() for sums in self._sums[run_id].values())
            path = self._collect_dir / run_id.file_name(GPUS_KIND)
            _write_as_root_or_owner(path, text.encode())
            del self._sums[run_id]


# Who is profiled


def profiled(run_dir: Path) -> dict[RunId, int]:
    """Return the runs profiled on this node, and the uid of each."""
    owners = {}
    with os.scandir(run_dir) as entries:
        for entry in entries:
            named = parsed_file_name(entry.name)
            if named is None or named[1] != TRAFFIC_KIND:
                continue
            with suppress(FileNotFoundError):
                owners[named[0]] = entry.stat(follow_symlinks=False).st_uid
    return owners


Jobs = Mapping[Claim, list[RunId]]


def _by_claim(owners: Mapping[RunId, int]) -> Jobs:
    """Return the runs by what their processes must claim. Of several runs of a job on a node only
    the latest counts: after a crash of the node, files of earlier runs may remain."""
    latest: dict[tuple[Claim, str], RunId] = {}
    for run_id in sorted(owners):
        claim = Claim(run_id.job_id, owners[run_id])
        latest[claim, run_id.node] = run_id
    jobs: dict[Claim, list[RunId]] = {}
    for (claim, _), run_id in latest.items():
        jobs.setdefault(claim, []).append(run_id)
    return jobs


# Folders and files


@contextmanager
def _folder_locked(run_dir: Path) -> Iterator[None]:
    """Lock the plugin's folder for this sampler alone."""
    folder = _own_folder(run_dir)
    # Lock a file that only its owner can open: every user can open, and so lock, the folder.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(LOCK_NAME, flags, 0o600, dir_fd=folder)
    except OSError as error:
        raise _unusable(run_dir, error) from error
    finally:
        os.close(folder)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AlreadyRunningError(
                f"Another sampler looks after the jobs in {run_dir}",
                "Use that one, or stop it first",
            ) from error
        yield
    finally:
        os.close(lock)


def _own_folder(path: Path) -> int:
    """Open a folder in which other users cannot create files, and so cannot claim any job."""
    try:
        # The first sampler after boot creates it, with the mode that the plugin uses, so that tasks
        # can enter it.
        with suppress(FileExistsError):
            path.mkdir()
            path.chmod(0o755)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, error) from error
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(descriptor)
        raise SamplerFolderError(
            f"Others may write into the run folder {path}, or it is another user's", _RUN_REMEDY
        )
    return descriptor


def _unusable(run_dir: Path, error: OSError) -> SamplerFolderError:
    return SamplerFolderError(
        f"The run folder {run_dir} cannot be used: {error.strerror}", _RUN_REMEDY
    )


def _may_write_into(folder: Path) -> bool:
    """Whether files can be created there, as root or as the folder's owner."""
    try:
        if not folder.is_dir():
            return False
        if os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            return True
        with _as_owner_of(folder):
            return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
    except OSError:
        return False


def _write_as_root_or_owner(path: Path, content: bytes) -> None:
    """Write as root, or as the folder's owner if root lacks access or may not set the group."""
    try:
        write_atomically(path, content, 0o640, group_of_folder=True)
    except PermissionError:
        with _as_owner_of(path.parent):
            write_atomically(path, content, 0o640, group_of_folder=True)


@contextmanager
def _as_owner_of(folder: Path) -> Iterator[None]:
    """Act as the folder's owner, for servers that deny root access: NFS with root_squash."""
    status = folder.stat()
    user, group = os.geteuid(), os.getegid()
    try:
        os.setegid(status.st_gid)
        os.seteuid(status.st_uid)
        yield
    finally:
        os.seteuid(user)
        os.setegid(group)
