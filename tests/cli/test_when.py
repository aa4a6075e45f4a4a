"""The questions and the answers of ``when``."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_tiresias.cli.when import asked_for
from slurm_tiresias.errors import UsageError
from slurm_tiresias.explanation.start import about, sooner
from slurm_tiresias.status.published import PublishedStart
from slurm_tiresias.status.when import Variant
from tests.cli.running import Site
from tests.cli.states import NOW_S

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-G", "8"), {"gpus": 8, "nodes": 0}),
        (("--gpus=a100:4", "-p", "gpu,debug"), {"gpu_type": "a100", "gpus": 4, "partition": "gpu"}),
        (("-N", "2-4", "--gres=gpu:v100:2"), {"gpu_type": "v100", "gpus": 2, "nodes": 2}),
        (("--gres=gpu", "--mem=4G"), {"gpus": 1, "nodes": 1}),
        (("-t", "90"), {"limit_s": 5400.0}),
        (("-t", "1-12"), {"limit_s": 36 * HOUR_S}),
        (("-t", "1:30:00"), {"limit_s": 1.5 * HOUR_S}),
        (("-t", "10:30"), {"limit_s": 630.0}),
        (("-J", "x" * 500), {"gpus": 1, "limit_s": 0.0}),
    ],
)
def test_sbatchs_options_are_read(options: tuple[str, ...], expected: dict[str, object]) -> None:
    found = asked_for(options)
    assert {name: found[name] for name in expected} == expected
    assert len(str(found["name"])) <= 100


@pytest.mark.parametrize("options", [("-G", "many"), ("-t", "soon"), ("-G",), ("-N", "\x1b[2J")])
def test_wrong_options_are_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        asked_for(options)


def test_the_lines_of_a_script_count_and_options_win(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/bash\n#SBATCH -G 8 --time=2:00:00  # a comment\npython train.py\n")
    found = asked_for(("-G", "2", str(script)))
    assert (found["gpus"], found["limit_s"], found["name"]) == (2, 2 * HOUR_S, "train.sh")
    # What follows the script is the program's.
    assert asked_for((str(script), "-G", "4", "data.csv"))["gpus"] == 8


def test_without_a_controller_or_a_job_there_is_one_clear_line(site: Site) -> None:
    assert site.run("when", "12").exit_code == 3
    assert site.run("when").exit_code == 2
    assert site.run("when", "twelve").exit_code == 2
    assert "'12 13' is neither one job id nor a script" in site.run("when", "12", "13").stderr
    assert site.run("when", "--", "sbatch", "-G", "4").exit_code == 3


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((10, "less than a minute"), (200, "3 min"), (1500, "25 min"), (4800, "1 h 20 min")),
        *((30 * HOUR_S, "1 d 6 h"), (7 * 24 * HOUR_S, "7 d")),
    ],
)
def test_guessed_durations_are_rounded(seconds: float, said: str) -> None:
    assert about(seconds) == said


def start(after_s: float) -> PublishedStart:
    return PublishedStart(NOW_S, 1.0, NOW_S + 9e5, NOW_S, NOW_S, NOW_S + after_s)


def test_what_gains_much_is_named_with_its_gain() -> None:
    variants = [
        Variant("as-it-is", "", start(3 * HOUR_S)),
        Variant("gpus", "4", start(1200.0)),
        Variant("gpus", "2", start(2.9 * HOUR_S)),
        Variant("limit", "14400.0", start(HOUR_S)),
        Variant("reports", "", start(600.0)),
    ]
    assert list(sooner(variants, NOW_S)) == [
        "With 4 GPUs: about 20 min instead of 3 h.",
        "With a time limit of 4 h: about 1 h instead of 3 h.",
        "If it reported its progress: about 10 min instead of 3 h.",
    ]
