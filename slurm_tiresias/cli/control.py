"""``pause``, ``resume``, ``release`` and ``nudge``: a word to the controller.

Where no controller runs, some commands still have an effect: ``pause`` and ``resume``
leave word for the next one, ``release`` gives the jobs back by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from slurm_tiresias.cli.options import takes_config
from slurm_tiresias.cli.text import count, printable
from slurm_tiresias.config import Config
from slurm_tiresias.daemon import control
from slurm_tiresias.errors import NotRunningError, TiresiasError

NO_CONTROLLER = "No controller runs; "
SHADOW = "shadow"


@click.command()
@takes_config
def pause(config: Config) -> None:
    """Stop acting on Slurm; go on deciding and publishing.

    Slurm then schedules by the priorities that stand there. Lasts until `resume`, also over a
    restart of the controller.
    """
    _tell(
        config,
        "pause",
        "Paused: the controller decides and publishes, and acts no more until it is resumed.",
        lambda: _set_paused(config, True),
    )


@click.command()
@takes_config
def resume(config: Config) -> None:
    """Act on Slurm again, after `pause` or `release`."""
    _tell(
        config,
        "resume",
        "Resumed: the controller acts again.",
        lambda: _set_paused(config, False),
    )


@click.command()
@takes_config
def release(config: Config) -> None:
    """Give every managed job back to Slurm, and pause.

    Leaves the jobs as if there had been no controller. Works without a controller too.
    """
    _tell(
        config,
        "release",
        "Released: every managed job is Slurm's own again, and the controller is paused.",
        lambda: _release(config),
    )


@click.command()
@takes_config
def nudge(config: Config) -> None:
    """Run a cycle now, without waiting for the interval."""
    click.echo(_said(control.send(Path(config.controller.state_dir), "nudge"), "A cycle was run."))


def _tell(config: Config, word: str, done: str, without_controller: Callable[[], str]) -> None:
    """Send the word; where no controller listens, do what can be done without a controller.

    A controller too busy to answer holds the state directory, so that nothing is done behind its
    back then: it is an ``AlreadyRunningError``.
    """
    try:
        answer = control.send(Path(config.controller.state_dir), word)
    except NotRunningError:
        click.echo(NO_CONTROLLER + without_controller())
    else:
        click.echo(_said(answer, _in_shadow(word) if answer.get("mode") == SHADOW else done))


def _said(answer: dict[str, Any], done: str) -> str:
    """What the controller said, or that it was done; a refusal is raised."""
    if error := answer.get("error"):
        # An error of the class that the exit code stands for.
        kinds = {kind.exit_code: kind for kind in TiresiasError.__subclasses__()}
        exit_code = answer.get("exit_code")
        kind = kinds.get(exit_code, TiresiasError) if isinstance(exit_code, int) else TiresiasError
        raise kind(
            f"The controller could not do it: {printable(str(error))}", "Its log may say more"
        )
    return printable(str(answer.get("text") or done))


def _in_shadow(word: str) -> str:
    """What a word comes to where the controller does not act anyway."""
    if word == "release":
        raise TiresiasError(
            "Nothing was released: the controller runs in shadow mode and writes nothing to Slurm",
            "To give back what an earlier one wrote, stop it and release again",
        )
    then = "acts no more until it is resumed" if word == "pause" else "acts"
    return f"The controller runs in shadow mode and does nothing; once in enforce mode, it {then}."


def _set_paused(config: Config, paused: bool) -> str:
    from slurm_tiresias.controller.offline import set_paused

    set_paused(config, paused)
    return "the next one starts paused." if paused else "the next one acts from its start."


def _release(config: Config) -> str:
    from slurm_tiresias.controller.offline import release

    changes = count(release(config), "change")
    return (
        f"every managed job was given back to Slurm by this command ({changes}), "
        "and the next one starts paused."
    )
