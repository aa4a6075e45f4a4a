"""``tiresias-slurm profile``: what is known of models, and what their files say."""

from __future__ import annotations

import json
import struct
from contextlib import closing
from pathlib import Path

import pytest

from slurm_tiresias.profiler.models import NAMES, tensors_of
from slurm_tiresias.profiler.profile import JOB, TRAFFIC, Profile, key_of
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.store import FILE_NAME, ProfileStore
from tests.cli.running import Site
from tests.cli.states import NOW_S

RECORDED = Path(__file__).parents[1] / "profiler" / "recorded"


def safetensors_of(name: str, path: Path) -> Path:
    """A file of one of the paper's models; the data is a hole, which takes no room on the disk."""
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
def test_a_models_file_says_how_to_place_it(
    site: Site, tmp_path: Path, name: str, advice: str
) -> None:
    file = safetensors_of(name, tmp_path / f"{name}.safetensors")
    out = site.run("profile", "model", str(file)).stdout
    assert advice in out
    assert "in 25 MB buckets" in out


def test_a_model_that_is_split_over_files_is_one_model(site: Site) -> None:
    files = [str(RECORDED / name) for name in ("state_dict.pt", "model.safetensors")]
    found = json.loads(site.run("profile", "model", *files, "--json").stdout)
    assert found["total_bytes"] == 1320 + 728
    assert len(found["tensors"]) == 13


def test_what_is_saved_is_listed_and_can_be_forgotten(site: Site, tmp_path: Path) -> None:
    file = safetensors_of("alexnet", tmp_path / "a.safetensors")
    assert "saved as" in site.run("profile", "model", str(file), "--save", "my-net").stdout
    assert "my-net" in site.run("profile", "list").stdout
    assert "Source: file" in site.run("profile", "show", "my-net").stdout
    assert site.run("profile", "forget", "my-net").stdout == "Forgot 1 profile.\n"
    assert site.run("profile", "forget", "my-net").exit_code == 1


@pytest.mark.parametrize("name", ["", "-x", "a b", "a'; DROP TABLE profiles", "x" * 65, "a\nb"])
def test_a_name_that_no_hint_could_give_is_refused(site: Site, name: str) -> None:
    result = site.run("profile", "model", str(RECORDED / "state_dict.pt"), f"--save={name}")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_none_is_refused_in_one_line(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "bad\nname"
    file.write_bytes(b"nothing")
    for bad in (file, tmp_path / "missing", tmp_path):
        result = site.run("profile", "model", str(bad))
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("tiresias-slurm: error: ")


def test_what_is_exported_can_be_imported_elsewhere(site: Site, tmp_path: Path) -> None:
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
def test_a_list_with_anything_wrong_in_it_stores_nothing(
    site: Site, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(content)
    result = site.run("profile", "import", str(file))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert len(site.run("profile", "list", "-n").stdout.splitlines()) == 10


def test_names_that_users_made_up_are_printed_inertly(site: Site) -> None:
    key = key_of(JOB, "\x1b[31mtrain\n'; DROP TABLE profiles; --", "eve\u202e")
    with closing(ProfileStore(site.folder / FILE_NAME)) as store:
        store.save([Profile(key, Skew(60 << 20, 80 << 20, 9), TRAFFIC, NOW_S)])
    listed = site.run("profile", "list", "-n").stdout
    assert len(listed.splitlines()) == 11
    assert "\x1b" not in listed
    shown = site.run("profile", "show", key.name, "--user", key.user).stdout
    assert "consolidate: largest message 75 % of jobs named" in shown
    assert "\x1b" not in shown


def test_what_nobody_knows_is_said_so(site: Site) -> None:
    result = site.run("profile", "show", "unheard-of")
    assert result.exit_code == 1
    assert "No profile of 'unheard-of' is stored" in result.stderr


def test_a_damaged_store_gets_one_line_and_its_exit_code(site: Site) -> None:
    (site.folder / FILE_NAME).write_bytes(b"no database at all" * 100)
    result = site.run("profile", "list")
    assert result.exit_code == 8
    assert result.stderr.count("\n") == 1
