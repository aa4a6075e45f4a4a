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
    one stays. Only one process at a time may write a path.
    """
    path = Path(path)
    draft = path.with_name(path.name + ".draft")
    try:
        with draft.open(mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
