"""The table ``[http]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import SettingError, Table, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config

_LISTEN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+):([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True)
class HttpConfig(Table):
    """What is served over HTTP: a live page at /, metrics at /metrics (docs/how-to/monitor.md)."""

    listen: str = setting(
        "",
        "Address and port, such as 127.0.0.1:9817 or [::1]:9817. There is no password: use a "
        "loopback address unless something else guards the port. Requests under other names than "
        "localhost, addresses and this host's own names are refused, so that a foreign page cannot "
        "read the answers (DNS rebinding). Empty: nothing listens.",
    )

    def check(self, config: Config) -> None:
        if not self.listen:
            return
        try:
            host_and_port(self.listen)
        except ValueError:
            raise SettingError(
                "http.listen",
                f"= {self.listen!r} is not an address with a port",
                "Write one like 127.0.0.1:9817, or leave it empty",
            ) from None


def host_and_port(listen: str) -> tuple[str, int]:
    """Split ``http.listen`` into host and port; raise ``ValueError`` if it is malformed."""
    found = _LISTEN.fullmatch(listen)
    if found is None or not 0 < int(found[2]) < 65536:
        raise ValueError(listen)
    return found[1].strip("[]"), int(found[2])
