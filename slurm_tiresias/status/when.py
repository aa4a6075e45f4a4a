"""Ask the controller when a job would start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.status.ask import ask
from slurm_tiresias.status.published import PublishedStart

SCHEMA = 1
REQUEST = "when"


@dataclass(frozen=True, slots=True)
class Variant:
    """When a job would start if its ``what`` were ``value``; ``as-it-is`` comes first."""

    what: str
    value: str
    start: PublishedStart


def query_when(state_dir: Path, about: str | Mapping[str, Any]) -> list[Variant]:
    """Ask when a waiting job, or one with these properties, would start; empty if that is not
    known. Raises the errors of ``ask``."""
    text = about if isinstance(about, str) else json.dumps(about)

    def parse(raw: Mapping[str, Any]) -> list[Variant]:
        return [json_codec.build(Variant, each) for each in raw["answers"]]

    return ask(state_dir, f"{REQUEST} {text}", SCHEMA, parse)
