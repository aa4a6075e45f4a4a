"""``config``: check and show the configuration."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib

import pytest

from scripts.tools import reference_pages
from slurm_tiresias.config import load, parse
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import PolicyConfig
from tests.cli.running import ROOT, Site, error_of


def test_a_valid_configuration_is_summarized(site: Site) -> None:
    site.configure("[policy]\nthresholds_gpu_s = [3250, 18000]\n")
    result = site.run("config", "check", str(site.config))
    assert result.exit_code == 0
    assert result.stdout == (
        f"{site.config}: ok\nManages gpu by 2d-las, order first-start, 3 tiers (split at "
        "3250 GPU-s, 5 GPU-h), every 10 s, in shadow mode.\n"
    )


def test_without_an_argument_the_configuration_in_use_is_checked(site: Site) -> None:
    assert site.run("config", "check").stdout.startswith(f"{site.config}: ok\n")
    assert site.run("config", "--config", "/nowhere", "check").exit_code == 4
    assert site.run("config", "check", "--config", "/nowhere").exit_code == 4


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        (b"[policy]\nthreshold_gpu_s = [1]\n", ":2: ", ""),
        (b'[policy]\nname = "fifo"\n', ":2: ", ""),
        (b"[manage\n", "", ""),
        (b"[preemption]\ncheckpoint = 10\n", ":2: ", ""),
        (b'[policy]\n# charge = 1\ncharge = "x"\n', ":3: ", ""),
        (b'[policy]\n\n  charge="x"', ":3: ", ""),
        (b'policy.charge = "x"\n', ":1: ", ""),
        (b"[manage]\npartitions = [\n]\n", ":2: ", ""),
        (b"[manage]\n[polic]\n", ":2: ", ""),
        (b"manage = 3\n", ":1: ", ""),
        (b'policy = {charge = "x"}\n', ": ", ""),
        (b"\xff\xfe\x00", "", "is not a text file"),
        *(
            (b'[http]\nlisten = "%s"\n' % listen, ":2: ", "http.listen")
            for listen in (b"9817", b"127.0.0.1", b"::1:9817", b"a b:1", b"h:0", b"h:65536")
        ),
    ],
)
def test_a_bad_file_is_one_line_that_names_the_line_of_the_file(
    site: Site, text: bytes, where: str, said: str
) -> None:
    site.config.write_bytes(text)
    result = site.run("config", "check")
    assert result.exit_code == 4
    error = error_of(result)
    assert error.startswith(f"{site.config}{where}") and said in error


def test_the_shown_configuration_parses_to_the_same_one(site: Site) -> None:
    site.configure('[manage]\npartitions = ["a100", "h100 \\"x\\" ü"]\n')
    output = site.run("config", "show").stdout
    assert parse(tomllib.loads(output)) == load(site.config)


def test_defaults_are_marked(site: Site) -> None:
    site.configure("[policy]\npromote_knob = 4\n")
    lines = site.run("config", "show").stdout.splitlines()
    assert "promote_knob = 4.0" in lines
    assert "budget_share = 0.1  # default" in lines


def test_the_configuration_is_shown_to_programs(site: Site) -> None:
    answer = json.loads(site.run("config", "show", "--json").stdout)
    assert answer["controller"]["state_dir"] == str(site.folder)
    assert answer["policy"]["thresholds_gpu_s"] == list(PolicyConfig().thresholds_gpu_s)


def test_the_example_equals_the_defaults_commented_or_not(site: Site) -> None:
    example = site.run("config", "example").stdout
    assert parse(tomllib.loads(example)) == Config()
    unmarked = re.sub(r"^#(?=\w)", "", example, flags=re.MULTILINE)
    assert parse(tomllib.loads(unmarked)) == Config()
    assert len(re.findall(r"^#\w+ = ", example, re.MULTILINE)) == sum(
        len(dataclasses.fields(getattr(Config(), table.name)))
        for table in dataclasses.fields(Config)
    )


def test_the_reference_has_one_row_per_setting() -> None:
    reference = reference_pages.config()
    for table in dataclasses.fields(Config):
        assert f"\n## [{table.name}]\n" in reference
        for setting in dataclasses.fields(getattr(Config(), table.name)):
            assert f"\n| `{setting.name}` | " in reference


def test_generated_files_are_up_to_date(site: Site) -> None:
    made = {
        "etc/tiresias.toml": site.run("config", "example").stdout,
        "docs/reference/config.md": reference_pages.config() + "\n",
    }
    for path, text in made.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, "run scripts/dev generate"
