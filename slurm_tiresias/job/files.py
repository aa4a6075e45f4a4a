"""Checkpoint files that are whole or not there at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """A file to write a checkpoint into, which replaces ``path`` when the block ends well.

    It lies beside the old checkpoint until all of it is on the disk, and is then renamed: a kill at
    any moment leaves the old one or the new one, whole. Where the block raises, the old one stays.
    One process at a time may write a path.
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
    """Have a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
