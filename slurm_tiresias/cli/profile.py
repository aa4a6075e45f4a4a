"""``tiresias-slurm profile``: manage profiles of models, and read model files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import click

from slurm_tiresias.cli.gpu_text import gpu_use_text
from slurm_tiresias.cli.options import (
    config_option,
    config_path,
    json_option,
    named_config_path,
    takes_config,
)
from slurm_tiresias.cli.profile_sample import sample
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.config import load
from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.job_hints import is_model_name
from slurm_tiresias.profiler import public_copy
from slurm_tiresias.profiler.exchange import MOST_BYTES, SCHEMA, as_data, parsed
from slurm_tiresias.profiler.files.read import read
from slurm_tiresias.profiler.files.tensor import StoredTensor
from slurm_tiresias.profiler.gpu_runs import GpuSummary, NodeGpus, summary_of
from slurm_tiresias.profiler.gpu_use import GpuUse, use_of
from slurm_tiresias.profiler.known_profiles import KnownProfiles
from slurm_tiresias.profiler.placing import Placing
from slurm_tiresias.profiler.profile import BUILT_IN, FILE, MODEL, Key, Profile, key_of
from slurm_tiresias.profiler.service import known
from slurm_tiresias.profiler.skew import BUCKET_BYTES, MB, Skew, in_buckets, skew_of
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.settings import Config
from slurm_tiresias.store.terms import newest_profiles
from slurm_tiresias.table import Column
from slurm_tiresias.text import count, moment, or_dash, printable

LARGEST_SHOWN = 5
EVERYBODY = "-"


@click.group()
def profile() -> None:
    """Show and manage profiles of models: how skewed each model is.

    Jobs of skewed models are consolidated on few nodes, the others may be spread.
    """


# What a file says


@profile.command()
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--save", "save_as", metavar="NAME", help="Store the result as this profile.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every tensor.")
@config_option
@click.pass_context
def model(
    context: click.Context, files: tuple[Path, ...], save_as: str | None, as_json: bool
) -> None:
    """Read a model's file, and recommend how to place its jobs.

    Reads safetensors and PyTorch checkpoints; several files if a model is split. Nothing in
    the files is executed. Exit code 2: not a model's file, or a damaged one.
    """
    tensors = tuple(tensor for file in files for tensor in read(file))
    if save_as is not None and not is_model_name(save_as):
        raise UsageError(
            f"{printable(save_as[:80])!r} cannot be the name of a model",
            "Write up to 64 letters, digits and . _ + -, a letter or digit first",
        )
    # A model file can be read without a configuration, but one that was named must exist.
    is_needed = save_as is not None or named_config_path(context) is not None
    config = load(config_path()) if is_needed or config_path().exists() else Config()
    study = _studied(files[0].name if save_as is None else save_as, tensors, config)
    if save_as is not None:
        with closing(_store(config)) as store:
            store.save([study.profile])
    show_or_json(
        as_json, study.as_data, lambda screen: study.lines(screen, saved=save_as is not None)
    )


@dataclass(frozen=True, slots=True)
class Study:
    """The analysis of a model's file."""

    profile: Profile
    tensors: tuple[StoredTensor, ...]
    bucketed: Skew
    placing: Placing

    def as_data(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            **as_data(self.profile),
            "bucket_bytes": BUCKET_BYTES,
            "largest_bucket_bytes": self.bucketed.largest_bytes,
            "largest_bucket_ratio": self.bucketed.ratio,
            "advice": self.placing.style.value,
            "because": self.placing.because,
            "tensors": [
                {"name": t.name, "shape": t.shape, "size_bytes": t.size_bytes} for t in self.tensors
            ],
        }

    def lines(self, screen: Screen, saved: bool) -> Iterator[str]:
        skew, bucketed = self.profile.skew, self.bucketed
        tensors = count(len(self.tensors), "tensor")
        yield f"{printable(self.profile.key.name)}: {tensors}, {_mb(skew.total_bytes)} MB"
        yield f"  largest tensor    {_mb(skew.largest_bytes)} MB, {_percent(skew.ratio)}"
        in_buckets_of = f"in {_mb(BUCKET_BYTES, 0)} MB buckets"
        yield f"  {in_buckets_of}  {_mb(bucketed.largest_bytes)} MB, {_percent(bucketed.ratio)}"
        yield from screen.prose(f"advice            {advice_text(self.placing)}")
        if saved:
            yield f"  saved as          {printable(self.profile.key.name)}"
        yield ""
        largest = sorted(self.tensors, key=lambda tensor: -tensor.size_bytes)[:LARGEST_SHOWN]
        yield from screen.table(_TENSORS, largest)


def _studied(name: str, tensors: tuple[StoredTensor, ...], config: Config) -> Study:
    sizes = [tensor.size_bytes for tensor in tensors]
    skew, bucketed = skew_of(sizes), skew_of(in_buckets(sizes))
    assert skew is not None and bucketed is not None, "a file without tensors was refused"
    found = Profile(key_of(MODEL, name), skew, FILE, time.time())
    return Study(found, tensors, bucketed, known(config, [], []).placing(found, found.key))


_TENSORS: Sequence[Column[StoredTensor]] = (
    Column("SIZE_MB", lambda t: _mb(t.size_bytes, 2), right=True),
    Column("SHAPE", lambda t: "x".join(map(str, t.shape)) or "-", least=8),
    Column("TENSOR", lambda t: printable(t.name), least=16),
)


# What is known


@profile.command("list")
@click.option("-n", "--noheader", is_flag=True, help="Only the rows.")
@json_option
@takes_config
def list_profiles(config: Config, noheader: bool, as_json: bool) -> None:
    """List every profile: built-in, imported from files, and measured."""
    rows = _rows(config)
    show_or_json(
        as_json,
        lambda: {"schema": SCHEMA, "profiles": _as_data(rows)},
        lambda screen: screen.table(_COLUMNS, rows, header=not noheader),
    )


@profile.command()
@click.argument("name")
@click.option("-u", "--user", metavar="USER", help="Only profiles of this user's jobs.")
@json_option
@takes_config
def show(config: Config, name: str, user: str | None, as_json: bool) -> None:
    """Show everything known about a model, or about jobs with a name, and how they are placed.

    Also shows how its runs used their GPUs, if the nodes sample that.
    """
    rows = {row.profile.key: row for row in _rows(config) if _is_of(row.profile.key, name, user)}
    gpus = _gpu_use(config, name, user)
    if not rows and not gpus:
        raise _unknown(name)
    use = [{**asdict(key), **asdict(summary)} for key, summary in gpus.items()]
    show_or_json(
        as_json,
        lambda: {"schema": SCHEMA, "profiles": _as_data(rows.values()), "gpu_use": use},
        lambda screen: _known_of(rows, gpus, screen),
    )


def _known_of(
    rows: Mapping[Key, Row], gpus: Mapping[Key, GpuSummary], screen: Screen
) -> Iterator[str]:
    for key in dict.fromkeys((*rows, *gpus)):
        whose = f" of {printable(key.user)}" if key.user else ""
        yield screen.style(f"{key.kind} {printable(key.name)}{whose}", "title")
        if key in rows:
            yield from rows[key].lines(screen)
        else:
            yield "  Nothing is known of what it sends."
        if key in gpus:
            yield from screen.prose(gpu_use_text(gpus[key]))


def _gpu_use(config: Config, name: str, user: str | None) -> dict[Key, GpuSummary]:
    """Return the GPU use of the runs of this name, by program."""
    path = _path_to_read(config)
    if not path.exists():
        return {}
    with closing(ProfileStore(path, writable=False)) as store:
        seen = _gpu_runs(store, name, user)
    return {key: summary_of(tuple(runs)) for key, runs in groupby(seen, lambda run: run.key)}


def _gpu_runs(store: ProfileStore, name: str, user: str | None) -> list[NodeGpus]:
    runs = store.gpu_runs(key_of(MODEL, name).name)
    return [run for run in runs if _is_of(run.key, name, user)]


@profile.command()
@click.argument("name")
@click.option("-u", "--user", metavar="USER", help="Only what was learned from this user's jobs.")
@takes_config
def forget(config: Config, name: str, user: str | None) -> None:
    """Delete a profile, the runs that it was learned from and their GPU use.

    Built-in profiles are kept.
    """
    with closing(_store(config)) as store:
        keys = {p.key for p in store.profiles() if _is_of(p.key, name, user)}
        keys |= {run.key for run in _gpu_runs(store, name, user)}
        if not keys:
            raise _unknown(name)
        forgotten = store.forget(keys)
    click.echo(f"Forgot {count(forgotten, 'profile')}.")


@profile.command()
@takes_config
def export(config: Config) -> None:
    """Write every stored profile to standard output, as JSON for import."""
    stored = [as_data(found) for found in _stored(config)[0]]
    click.echo(json.dumps({"schema": SCHEMA, "profiles": stored}, indent=1))


@profile.command("import")
@click.argument("file", type=click.File("rb"))
@takes_config
def import_profiles(config: Config, file: BinaryIO) -> None:
    """Import profiles from a file written by export or by hand; - reads standard input.

    Either all profiles are stored or, if one is invalid, none. They replace profiles of the same
    name.
    """
    profiles = parsed(file.read(MOST_BYTES + 1))
    with closing(_store(config)) as store:
        store.save(profiles)
    click.echo(f"Stored {count(len(profiles), 'profile')}.")


@dataclass(frozen=True, slots=True)
class Row:
    """One profile, and how its jobs are placed."""

    profile: Profile
    placing: Placing

    @property
    def noted(self) -> str:
        return "-" if self.profile.source == BUILT_IN else moment(self.profile.noted_s)

    def lines(self, screen: Screen) -> Iterator[str]:
        found, skew = self.profile, self.profile.skew
        piece = "message" if found.measured else "tensor"
        yield from screen.prose(
            f"{_mb(skew.total_bytes)} MB in {count(skew.pieces, piece)}, the largest "
            f"{_mb(skew.largest_bytes)} MB, {_percent(skew.ratio)}."
        )
        yield from screen.prose(f"Placement: {advice_text(self.placing)}.")
        when = "" if found.source == BUILT_IN else f", {self.noted}"
        yield f"  Source: {printable(found.source)}{when}."


def advice_text(placing: Placing) -> str:
    """Return the style, and the rule and number behind it."""
    return f"{placing.style.value}: {printable(placing.because)}"


_COLUMNS: Sequence[Column[Row]] = (
    Column("KIND", lambda row: printable(row.profile.key.kind)),
    Column("NAME", lambda row: printable(row.profile.key.name), least=10, worth=8),
    Column("USER", lambda row: printable(row.profile.key.user) or EVERYBODY, least=8),
    Column("SIZE_MB", lambda row: _mb(row.profile.skew.total_bytes), right=True, goes=2),
    Column("PIECES", lambda row: str(row.profile.skew.pieces), right=True, goes=1),
    Column("LARGEST_MB", lambda row: _mb(row.profile.skew.largest_bytes), right=True),
    Column("RATIO", lambda row: _percent(row.profile.skew.ratio), right=True),
    Column("PLACEMENT", lambda row: row.placing.style.value),
    Column("SOURCE", lambda row: printable(row.profile.source)),
    Column("NOTED", lambda row: row.noted, goes=3),
)


def _rows(config: Config) -> list[Row]:
    _, known_profiles = _stored(config)
    return [
        Row(found, known_profiles.placing(found, found.key))
        for found in known_profiles.profiles.values()
    ]


def _as_data(rows: Iterable[Row]) -> list[dict[str, object]]:
    return [
        {**as_data(r.profile), "advice": r.placing.style.value, "because": r.placing.because}
        for r in rows
    ]


def _is_of(key: Key, name: str, user: str | None) -> bool:
    return key.name == key_of(MODEL, name).name and user in (None, key.user)


def _unknown(name: str) -> TiresiasError:
    return TiresiasError(
        f"No profile of {printable(name[:80])!r} is stored", "See: tiresias-slurm profile list"
    )


# The GPUs


@profile.command()
@click.argument("gpus", metavar="[GPU]...", nargs=-1)
@click.option("-n", "--noheader", is_flag=True, help="Only the rows.")
@json_option
def gpu(gpus: tuple[str, ...], noheader: bool, as_json: bool) -> None:
    """Show how GPUs of this machine are used right now, named by UUID or PCI address.

    Without a name, shows all GPUs that are visible here. For the GPUs of a running job: srun
    --overlap --jobid=JOBID tiresias-slurm profile gpu. A number that is not available is shown as
    -.
    """
    found = use_of(gpus)
    show_or_json(
        as_json,
        lambda: {"schema": SCHEMA, "gpus": [asdict(use) for use in found]},
        lambda screen: screen.table(_GPU_COLUMNS, found, header=not noheader),
    )


_GPU_COLUMNS: Sequence[Column[GpuUse]] = (
    Column("GPU", lambda use: printable(use.gpu), least=12),
    Column("NAME", lambda use: printable(use.name or "-"), least=8, goes=1),
    Column("UTIL", lambda use: or_dash(use.utilization, "{:.0%}".format), right=True),
    Column("MEM_MB", lambda use: or_dash(use.memory_used_bytes, _whole_mb), right=True),
    Column("OF_MB", lambda use: or_dash(use.memory_bytes, _whole_mb), right=True, goes=2),
    Column("PCIE_TX_MB/S", lambda use: or_dash(use.pcie_sent_bytes_per_s, _whole_mb), right=True),
    Column(
        "PCIE_RX_MB/S", lambda use: or_dash(use.pcie_received_bytes_per_s, _whole_mb), right=True
    ),
    Column("NVLINK_TX_MB", lambda use: or_dash(use.nvlink_sent_bytes, _whole_mb), right=True),
    Column("NVLINK_RX_MB", lambda use: or_dash(use.nvlink_received_bytes, _whole_mb), right=True),
)


profile.add_command(sample)


# The store


def _store_path(config: Config) -> Path:
    return newest_profiles(Path(config.controller.state_dir))


def _path_to_read(config: Config) -> Path:
    """Return the store, or the controller's published copy for users who may not read the store."""
    store, copy = _store_path(config), Path(config.controller.state_dir) / public_copy.FILE_NAME
    return copy if copy.exists() and not os.access(store, os.R_OK) else store


def _store(config: Config) -> ProfileStore:
    return ProfileStore(_store_path(config))


def _stored(config: Config) -> tuple[list[Profile], KnownProfiles]:
    """Return the stored profiles and the placements derived from them; empty if there is no store
    yet."""
    path = _path_to_read(config)
    if not path.exists():
        return [], known(config, [], [])
    with closing(ProfileStore(path, writable=False)) as store:
        profiles = store.profiles()
        return profiles, known(config, profiles, store.runs())


def _mb(size_bytes: int, digits: int = 1) -> str:
    return f"{size_bytes / MB:.{digits}f}"


def _whole_mb(size_bytes: int) -> str:
    return _mb(size_bytes, 0)


def _percent(share: float) -> str:
    return f"{share:.1%}"
