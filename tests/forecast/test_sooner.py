"""What would make a job start sooner."""

from __future__ import annotations

from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.forecast.forecaster import Forecaster
from slurm_tiresias.forecast.futures import Futures, Present, present
from slurm_tiresias.forecast.past import Past, PastJob
from slurm_tiresias.forecast.ranges import Calibration
from slurm_tiresias.forecast.sooner import Asked, answers
from tests.forecast.test_futures import CONFIG, MOST_S, NODES, SITE, running

NOW_S = 100.0
LONG = [PastJob(float(n), 4, "ada", "", None, 90_000.0 + n, ended=True) for n in range(20)]


def of_two_nodes(*jobs: Job) -> Futures:
    """Two nodes of 4 GPUs, of which the first is busy for 5,000 s."""
    every = [running("1", 4, 5000.0), *jobs]
    at = Present(NOW_S, NODES[:2], present(NOW_S, NODES, every).rows)
    return Futures(at, CONFIG, Past(LONG, NOW_S), make_policy(CONFIG.policy))


def likely_s(made: Futures, job: Job) -> dict[str, float]:
    found = answers(made, job, Calibration(), ("gpu",))
    return {
        f"{each.what} {each.value}".strip(): each.range.likely_s for each in found if each.range
    }


def test_fewer_gpus_start_on_the_node_that_is_idle() -> None:
    made = of_two_nodes()
    found = likely_s(made, Asked("ada", nodes=2, gpus=4).as_job(NOW_S, ("gpu",)))
    assert found["as-it-is"] > 3500.0
    assert found["gpus 4"] < 300.0 and found["gpus 2"] < 300.0


def test_a_job_that_waits_is_asked_about_as_it_is() -> None:
    waits = Job("2", SITE.request(8), submitted_s=90.0, settled_s=NOW_S, queued_s=90.0)
    made = of_two_nodes(waits)
    found = likely_s(made, made.jobs["2"])
    of_picture = Forecaster().look(made, MOST_S, lambda *_: None).ranges["2"]
    assert of_picture and 0.5 < found["as-it-is"] / of_picture.likely_s < 2.0
    assert found["gpus 4"] < 300.0


def test_what_is_asked_delays_no_other_variant() -> None:
    """The jobs that are asked about leave at once, else the last would wait for 90,000 s."""
    made = of_two_nodes()
    found = likely_s(made, Asked("ada", gpus=8).as_job(NOW_S, ("gpu",)))
    assert len(found) == 4 and max(found.values()) < 9000.0
