"""The folders that the service on a node works in: the plugin's own, and the shared one."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.errors import AlreadyRunningError, TiresiasError

LOCK_NAME = "sampler.lock"
"""The lock file in the run folder; neither the plugin nor the sampler mistakes it for a job's
file."""

_RUN_REMEDY = "Give --run as in plugstack.conf, and run this as root"


class SamplerFolderError(TiresiasError):
    """A folder of the sampler is missing, or other users own it or may write to it."""

    exit_code = 10


@contextmanager
def folder_locked(run_dir: Path) -> Iterator[None]:
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
                f"Another sampler handles the jobs in {run_dir}",
                "Use that sampler, or stop it first",
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
            f"Other users may write into the run folder {path}, or it belongs to another user",
            _RUN_REMEDY,
        )
    return descriptor


def _unusable(run_dir: Path, error: OSError) -> SamplerFolderError:
    return SamplerFolderError(
        f"The run folder {run_dir} cannot be used: {error.strerror}", _RUN_REMEDY
    )


def may_write_into(folder: Path) -> bool:
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


def write_as_root_or_owner(path: Path, content: bytes) -> None:
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
