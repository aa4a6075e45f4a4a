"""Write checkpoint files atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """A file to write a checkpoint into, which replaces ``path`` if the block succeeds.

    It lies beside the old checkpoint until it is completely on the disk, and is then renamed: a
    kill at any moment leaves either the old or the new one complete. If the block raises, the old
    one stays. Only one process at a time may write a path. The new file has the permissions of the
    old one; if ``path`` is a link, the file that it points to is replaced. ``mode`` begins with
    "w", otherwise ``ValueError`` is raised.
    """
    if not mode.startswith("w"):
        raise ValueError(f"mode {mode!r}: a checkpoint is written anew. Use 'wb' or 'w'.")
    path = Path(os.path.realpath(path))
    draft = path.with_name(path.name + ".draft")
    try:
        with draft.open(mode) as file:
            with contextlib.suppress(FileNotFoundError):
                draft.chmod(path.stat().st_mode & 0o777)
            yield file
        # Not before, as the block may have closed the file itself.
        sync(draft)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    sync(path.parent)


def by_step(folder: Path, prefix: str, suffix: str = "") -> dict[int, Path]:
    """The checkpoints in a folder whose names are a prefix, their steps, and a suffix."""
    names = {
        path.name[len(prefix) : -len(suffix) or None]: path
        for path in folder.glob(f"{prefix}*{suffix}")
    }
    return {int(number): path for number, path in names.items() if number.isdecimal()}


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
