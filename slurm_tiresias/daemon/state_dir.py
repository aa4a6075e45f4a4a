"""Check who can write to the state directory: other users could replace its files by links."""

from __future__ import annotations

import stat

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_anybodys(owner_id: int, mode: int, user_id: int) -> bool:
    """Whether other users may write to the folder. Root trusts the owner of the folder."""
    foreign = user_id != 0 and owner_id not in (0, user_id)
    return foreign or bool(mode & OTHERS_WRITE)
