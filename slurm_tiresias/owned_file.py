"""Create files that belong to the controller's user, also when root creates them."""

from __future__ import annotations

import os
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
