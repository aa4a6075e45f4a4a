"""``pause``, ``resume``, ``hand-back``, ``boost``, ``nudge``: commands to the running controller.

Some also work when no controller runs: ``pause`` and ``resume`` are stored for the next one, and
``hand-back`` gives the jobs back to Slurm by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from slurm_tiresias.cli.options import job_id_argument, one_job_argument, takes_config
from slurm_tiresias.cli.times import slurm_time
from slurm_tiresias.errors import NotRunningError, TiresiasError
from slurm_tiresias.settings import Config
from slurm_tiresias.status.ask import command
from slurm_tiresias.text import count, moment, printable

NO_CONTROLLER = "No controller runs; "
SHADOW = "shadow"


@click.command()
@takes_config
def pause(config: Config) -> None:
    """Stop acting on Slurm, but keep deciding and publishing.

    Preemptions under way are abandoned: nominated jobs get their own node lists back. Slurm then
    schedules by the priorities that are set. Lasts until `resume`, even if the controller restarts.
    """
    _tell(
        config,
        "pause",
        "Paused: the controller decides and publishes, and acts no more until it is resumed.",
        lambda: _set_paused(config, True),
    )


@click.command()
@one_job_argument
@takes_config
def resume(config: Config, job_id: str | None) -> None:
    """Act on Slurm again, after `pause` or `hand-back`; or manage one job again."""
    if job_id:
        _order(config, f"resume {job_id}", f"Job {job_id} is managed again.")
        return
    _tell(
        config, "resume", "Resumed: the controller acts again.", lambda: _set_paused(config, False)
    )


@click.command("hand-back")
@one_job_argument
@takes_config
def hand_back(config: Config, job_id: str | None) -> None:
    """Hand every managed job back to Slurm, and pause; or hand one job back.

    Jobs are left as if the controller had never managed them. Without JOBID it also works if no
    controller runs.
    """
    if job_id:
        done = f"Job {job_id} is Slurm's own until: tiresias-slurm resume {job_id}"
        _order(config, f"hand-back {job_id}", done)
        return
    _tell(
        config,
        "hand-back",
        "Handed back: every managed job is Slurm's own again, and the controller is paused.",
        lambda: _hand_back(config),
    )


@click.command()
@click.argument("job_id", metavar="JOBID", callback=job_id_argument)
@click.option(
    "--until",
    metavar="TIME",
    required=True,
    callback=slurm_time,
    help="As sacct -S takes it, such as now+2days; now ends a boost.",
)
@takes_config
def boost(config: Config, job_id: str, until: float) -> None:
    """Let one job go before all others, and not be preempted, until a time.

    Only root and the controller's user may do this. The job's history says who did it.
    """
    done = f"Job {job_id} is boosted until {moment(until)}."
    _order(config, f"boost {job_id} {until:.0f}", done)


@click.command()
@takes_config
def nudge(config: Config) -> None:
    """Run a cycle now, without waiting for the interval."""
    answer = command(Path(config.controller.state_dir), "nudge")
    click.echo(printable(str(answer.get("text") or "A cycle was run.")))


def _order(config: Config, request: str, done: str) -> None:
    """Send what is ordered for one job."""
    mode = command(Path(config.controller.state_dir), request).get("mode")
    click.echo(done if mode != SHADOW else f"{done} (The controller runs in shadow mode.)")


def _tell(config: Config, word: str, done: str, without_controller: Callable[[], str]) -> None:
    """Send a command; if no controller listens, run ``without_controller`` instead.

    A busy controller still holds the state directory, so nothing is changed behind its back: that
    raises ``AlreadyRunningError``.
    """
    try:
        answer = command(Path(config.controller.state_dir), word)
    except NotRunningError:
        click.echo(NO_CONTROLLER + without_controller())
    else:
        done = _in_shadow(word) if answer.get("mode") == SHADOW else done
        click.echo(printable(str(answer.get("text") or done)))


def _in_shadow(word: str) -> str:
    """Return what a command means for a controller in shadow mode, which does not act anyway."""
    if word == "hand-back":
        raise TiresiasError(
            "Nothing was handed back: the controller runs in shadow mode, and has written nothing",
            "To hand back what an earlier one wrote, stop it and do this again",
        )
    then = "acts no more until it is resumed" if word == "pause" else "acts"
    return f"The controller runs in shadow mode and does nothing; once in enforce mode, it {then}."


def _set_paused(config: Config, paused: bool) -> str:
    from slurm_tiresias.controller.offline import set_paused

    set_paused(config, paused)
    return "the next one starts paused." if paused else "the next one acts from its start."


def _hand_back(config: Config) -> str:
    from slurm_tiresias.controller.offline import hand_back

    changes = count(hand_back(config), "change")
    return (
        f"every managed job was handed back to Slurm by this command ({changes}), "
        "and the next one starts paused."
    )
