"""Atomic writes of reports, and a check before the simulation that the target is writable."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_tiresias.errors import TiresiasError, UsageError


def check_writable(path: Path) -> Path:
    """Return the path that a report will be written to; ``UsageError`` if it is not writable.

    Links are followed: the file that a link points to will be replaced.
    """
    try:
        target = path.resolve()
        if _is_there(target) and not target.is_file():
            raise UsageError(f"{path} is not a file", "Name a file, which may be new")
        with _beside(target):
            pass
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"{path} cannot be written: {_why(error)}", "Name a file in a folder you may write in"
        ) from None
    return target


def write_whole(target: Path, content: bytes) -> None:
    """Replace a file atomically with new content; on an error the old file stays."""
    try:
        with _beside(target) as draft:
            _fill(draft, content)
            if _is_there(target):
                draft.chmod(target.stat().st_mode & 0o777)
            draft.replace(target)
    except OSError as error:
        raise TiresiasError(
            f"{target} cannot be written: {_why(error)}", "Solve the problem and run it again"
        ) from error


def _is_there(target: Path) -> bool:
    """Like ``Path.exists``, which in some releases of Python hides that a name is too long."""
    with suppress(FileNotFoundError):
        target.stat()
        return True
    return False


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Create a temporary file in the target's folder; it is removed unless it was renamed."""
    draft = target.with_name(f".tiresias-{secrets.token_hex(8)}")
    try:
        draft.touch(exist_ok=False)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _fill(draft: Path, content: bytes) -> None:
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        # If the rename reached the disk before the content, a crash would leave an empty file.
        os.fsync(file.fileno())


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
