"""Files that are written whole or not at all, and refused before the work and not after it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_tiresias.errors import TiresiasError, UsageError


def check_writable(path: Path) -> Path:
    """Where a report will be put; raises ``UsageError`` where that cannot work.

    A link is followed: the file that it leads to is what will be replaced.
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
    """Put the content in place of what is there in one step; what was there stays on an error."""
    try:
        with _beside(target) as draft:
            _fill(draft, content)
            if _is_there(target):
                draft.chmod(target.stat().st_mode & 0o777)
            draft.replace(target)
    except OSError as error:
        raise TiresiasError(
            f"{target} cannot be written: {_why(error)}", "Mend that and run it again"
        ) from error


def _is_there(target: Path) -> bool:
    """As ``Path.exists``, which in some releases of Python hides that a name is too long."""
    with suppress(FileNotFoundError):
        target.stat()
        return True
    return False


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A new file in the same folder, which is gone afterwards unless it was renamed."""
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
        # A rename that reaches the disk before the content would leave an empty file behind.
        os.fsync(file.fileno())


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
