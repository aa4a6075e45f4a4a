"""Create files that belong to the controller's user, also when root creates them; read those of
other users."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def make_if_missing(path: Path, mode: int) -> None:
    """Create an empty file with its folder's owner if it is missing; raises ``OSError``."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor):
            os.fchmod(descriptor, mode)
            if os.geteuid() == 0:
                owner = path.parent.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)


def read_regular(path: Path, most: int) -> bytes:
    """Return up to ``most`` bytes of a file that another user may have replaced by anything.

    Raises ``OSError`` if it is a link or no regular file. O_NONBLOCK: a lease on it would otherwise
    make this wait for its owner.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a file")
        return stream.read(most)
