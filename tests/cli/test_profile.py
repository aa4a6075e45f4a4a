"""``tiresias-slurm profile``: known models, and models' files."""

from __future__ import annotations

import json
import struct
from contextlib import closing
from pathlib import Path

import pytest

from scripts.testbed.models import NAMES, tensors_of
from slurm_tiresias.profiler.gpu_runs import GpuRun, NodeGpus
from slurm_tiresias.profiler.profile import JOB, TRAFFIC, Key, Profile
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.store import FILE_NAME, ProfileStore
from tests.cli.running import Site
from tests.cli.states import NOW_S

RECORDED = Path(__file__).parents[1] / "profiler" / "recorded"


def safetensors_of(name: str, path: Path) -> Path:
    """Write a file of one of the paper's models; its data is a hole that takes no disk space."""
    header, end = {}, 0
    for number, tensor in enumerate(tensors_of(name)):
        begin, end = end, end + tensor.size_bytes
        header[f"layer{number}"] = {
            "dtype": "F32",
            "shape": tensor.shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return path


def test_the_ten_models_of_the_paper_are_listed_with_their_placement(site: Site) -> None:
    lines = site.run("profile", "list").stdout.splitlines()
    assert lines[0].split() == [
        *("KIND", "NAME", "USER", "SIZE_MB", "PIECES", "LARGEST_MB", "RATIO", "PLACEMENT"),
        *("SOURCE", "NOTED"),
    ]
    rows = {line.split()[1]: line.split() for line in lines[1:]}
    assert list(rows) == list(NAMES)
    assert rows["vgg16"][3:9] == ["527.8", "32", "392.0", "74.3%", "consolidate", "built-in"]
    assert rows["resnet50"][7] == "spread"


def test_without_a_header_there_are_only_rows(site: Site) -> None:
    assert len(site.run("profile", "list", "-n").stdout.splitlines()) == 10


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("vgg16", "consolidate: largest tensor 74 % of vgg16.safetensors (from its file), limit"),
        ("resnet50", "spread: largest tensor 9 % of resnet50.safetensors (from its file), limit"),
    ],
)
def test_a_model_file_gives_a_placement(site: Site, tmp_path: Path, name: str, advice: str) -> None:
    file = safetensors_of(name, tmp_path / f"{name}.safetensors")
    out = site.run("profile", "model", str(file)).stdout
    assert advice in out
    assert "in 25 MB buckets" in out


def test_a_model_split_over_several_files_is_read_as_one(site: Site) -> None:
    files = [str(RECORDED / name) for name in ("state_dict.pt", "model.safetensors")]
    found = json.loads(site.run("profile", "model", *files, "--json").stdout)
    assert found["total_bytes"] == 1320 + 728
    assert len(found["tensors"]) == 13


def test_a_saved_profile_is_listed_and_can_be_forgotten(site: Site, tmp_path: Path) -> None:
    file = safetensors_of("alexnet", tmp_path / "a.safetensors")
    assert "saved as" in site.run("profile", "model", str(file), "--save", "my-net").stdout
    assert "my-net" in site.run("profile", "list").stdout
    assert "Source: file" in site.run("profile", "show", "my-net").stdout
    assert site.run("profile", "forget", "my-net").stdout == "Forgot 1 profile.\n"
    assert site.run("profile", "forget", "my-net").exit_code == 1


@pytest.mark.parametrize("name", ["", "-x", "a b", "a'; DROP TABLE profiles", "x" * 65, "a\nb"])
def test_a_name_that_is_not_valid_in_a_hint_is_refused(site: Site, name: str) -> None:
    result = site.run("profile", "model", str(RECORDED / "state_dict.pt"), f"--save={name}")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_a_damaged_or_missing_model_file_is_refused_in_one_line(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "bad\nname"
    file.write_bytes(b"nothing")
    for bad in (file, tmp_path / "missing", tmp_path):
        result = site.run("profile", "model", str(bad))
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("tiresias-slurm: error: ")


def test_exported_profiles_can_be_imported_elsewhere(site: Site, tmp_path: Path) -> None:
    site.run("profile", "model", str(RECORDED / "state_dict.pt"), "--save", "tiny")
    exported = site.run("profile", "export").stdout
    assert [entry["name"] for entry in json.loads(exported)["profiles"]] == ["tiny"]
    file = tmp_path / "profiles.json"
    file.write_text(exported.replace('"tiny"', '"tiny2"'))
    assert site.run("profile", "import", str(file)).stdout == "Stored 1 profile.\n"
    assert {"tiny", "tiny2"} <= set(site.run("profile", "list").stdout.split())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2, "profiles": []}',
        '{"schema": 1, "profiles": [1]}',
        '{"schema": 1, "profiles": [{"kind": "model", "name": "x"}]}',
        "[" * 100_000,
        *(
            '{{"schema": 1, "profiles": [{{"kind": {}, "name": {}, "largest_bytes": {}, '
            '"total_bytes": {}, "noted_s": {}}}]}}'.format(*values)
            for values in (
                ('"model"', '"x"', "-1", "5", "0"),
                ('"model"', '"x"', "6", "5", "0"),
                ('"model"', '"x"', "NaN", "5", "0"),
                ('"model"', '"x"', "true", "5", "0"),
                ('"model"', '"x"', "1", "1e400", "0"),
                ('"model"', '"x"', "1", "9" * 60, "0"),
                ('"model"', '"x"', "1", "5", "NaN"),
                ('"model"', '"x"', "1", "5", '"soon"'),
                ('"model"', '""', "1", "5", "0"),
                ('"model"', "7", "1", "5", "0"),
                ('"shape"', '"x"', "1", "5", "0"),
            )
        ),
    ],
)
def test_an_import_with_a_bad_profile_is_refused(site: Site, tmp_path: Path, content: str) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(content)
    result = site.run("profile", "import", str(file))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert len(site.run("profile", "list", "-n").stdout.splitlines()) == 10


def test_an_unknown_profile_is_an_error(site: Site) -> None:
    result = site.run("profile", "show", "unheard-of")
    assert result.exit_code == 1
    assert "No profile of 'unheard-of' is stored" in result.stderr


def test_a_damaged_store_gets_one_line_and_its_exit_code(site: Site) -> None:
    (site.folder / FILE_NAME).write_bytes(b"no database at all" * 100)
    result = site.run("profile", "list")
    assert result.exit_code == 8
    assert result.stderr.count("\n") == 1


# GPU use

KEY = Key(JOB, "train", "ann")
MEASURED = GpuRun(
    uuid="GPU-11111111-2222-3333-4444-555555555555",
    samples=12,
    seen_s=110.0,
    utilization=0.874,
    peak_memory_bytes=int(61.25 * (1 << 30)),
    memory_bytes=80 << 30,
    pcie_sent_bytes_per_s=1500 << 20,
    pcie_received_bytes_per_s=25 << 20,
    nvlink_sent_bytes=110 << 30,
    nvlink_received_bytes=220 << 30,
)
ABSENT = GpuRun("GPU-2", samples=1, seen_s=0.0)
SENTENCE = (
    "  GPUs: busy 87%, at most 61.2 of 80.0 GiB in use, PCIe 1,500.0 MB/s sent and 25.0 MB/s "
    "received, NVLink 1,024.0 MB/s sent and 2,048.0 MB/s received. Seen in 13 samples of 2 GPUs "
    "in 1 run."
)


def keep_gpus(folder: Path, *gpus: GpuRun, key: Key = KEY, profiled: bool = True) -> None:
    with closing(ProfileStore(folder / FILE_NAME)) as store:
        if profiled:
            store.save([Profile(key, Skew(60 << 20, 80 << 20, 9), TRAFFIC, NOW_S)])
        store.add_gpus(NodeGpus(RunId(7, 0, "n1"), key, gpus), NOW_S)


def test_gpu_use_of_jobs_is_shown_with_their_profile(site: Site) -> None:
    keep_gpus(site.folder, MEASURED, ABSENT)
    lines = site.run("profile", "show", "train").stdout.splitlines()
    assert lines[0] == "job train of ann"
    assert lines[-2].startswith("  Source: traffic, ")
    assert lines[-1] == SENTENCE


def test_gpu_use_is_shown_for_jobs_that_sent_no_messages(site: Site) -> None:
    keep_gpus(site.folder, MEASURED, profiled=False)
    lines = site.run("profile", "show", "train").stdout.splitlines()
    assert lines[:2] == ["job train of ann", "  Nothing is known of what it sends."]
    assert lines[2].startswith("  GPUs: busy 87%")
    assert site.run("profile", "show", "train", "--user", "bob").exit_code == 1
    assert "train" not in site.run("profile", "list").stdout
    assert site.run("profile", "forget", "train").stdout == "Forgot 1 profile.\n"
    assert site.run("profile", "show", "train").exit_code == 1


def test_missing_numbers_are_not_shown(site: Site) -> None:
    keep_gpus(site.folder, ABSENT)
    assert site.run("profile", "show", "train").stdout.splitlines()[-1] == (
        "  GPUs: in use, but nothing can be measured. Seen in 1 sample of 1 GPU in 1 run."
    )


def test_json_has_the_gpu_use_of_jobs(site: Site) -> None:
    keep_gpus(site.folder, MEASURED)
    shown = json.loads(site.run("profile", "show", "train", "--json").stdout)
    assert [entry["name"] for entry in shown["profiles"]] == ["train"]
    [use] = shown["gpu_use"]
    assert use == {
        "kind": "job",
        "name": "train",
        "user": "ann",
        "runs": 1,
        "gpus": 1,
        "samples": 12,
        "utilization": pytest.approx(0.874),
        "peak_memory_bytes": MEASURED.peak_memory_bytes,
        "memory_bytes": MEASURED.memory_bytes,
        "pcie_sent_bytes_per_s": 1500 << 20,
        "pcie_received_bytes_per_s": 25 << 20,
        "nvlink_sent_bytes_per_s": 1 << 30,
        "nvlink_received_bytes_per_s": 2 << 30,
    }
    assert "gpu_use" not in json.loads(site.run("profile", "list", "--json").stdout)


def test_the_text_about_gpu_use_fits_a_terminal(live_site: Site) -> None:
    keep_gpus(live_site.folder, MEASURED, ABSENT)
    exit_code, shown = live_site.on_terminal(80, "profile", "show", "train", NO_COLOR="1")
    assert exit_code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert SENTENCE.split() == shown[shown.index("GPUs:") :].split()
