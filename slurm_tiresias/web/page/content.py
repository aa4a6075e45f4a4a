"""Page content: compressed if the browser accepts it, and not sent again if it has it already."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from slurm_tiresias.web.http import Answer, Request

LEAST_WORTH_COMPRESSING = 1024
GZIP_LEVEL = 4
"""Higher levels take much longer on a large state and save little."""


@dataclass(frozen=True, slots=True)
class Content:
    """Content with and without compression."""

    kind: str
    plain: bytes
    packed: bytes
    etag: str


def content(kind: str, plain: bytes, etag: str = "") -> Content:
    """Prepare content; ``etag``, without quotes, is by default a hash of the content."""
    worth = len(plain) >= LEAST_WORTH_COMPRESSING
    packed = gzip.compress(plain, GZIP_LEVEL, mtime=0) if worth else b""
    return Content(kind, plain, packed, f'"{etag or hashlib.sha256(plain).hexdigest()[:20]}"')


def as_asked(what: Content, request: Request, headers: Mapping[str, str]) -> Answer:
    """Answer with the content, compressed if the browser accepts that, or 304 if it has it."""
    common = {**headers, "ETag": what.etag, "Vary": "Accept-Encoding"}
    known = request.headers.get("if-none-match", "").split(",")
    if any(tag.strip().removeprefix("W/") in ("*", what.etag) for tag in known):
        return Answer(what.kind, b"", HTTPStatus.NOT_MODIFIED, common)
    if what.packed and _takes_gzip(request.headers.get("accept-encoding", "")):
        packed = {**common, "Content-Encoding": "gzip"}
        return Answer(what.kind, what.packed, headers=packed)
    return Answer(what.kind, what.plain, headers=common)


def _takes_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
