"""``pause``, ``resume``, ``release`` and ``nudge``: commands to the running controller.

Some also work when no controller runs: ``pause`` and ``resume`` are stored for the next one, and
``release`` gives the jobs back to Slurm by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from slurm_tiresias.cli.options import takes_config
from slurm_tiresias.errors import NotRunningError, TiresiasError
from slurm_tiresias.settings import Config
from slurm_tiresias.status.ask import command
from slurm_tiresias.text import count, printable

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

    Jobs are left as if the controller had never managed them. Also works if no controller runs.
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
    answer = command(Path(config.controller.state_dir), "nudge")
    click.echo(printable(str(answer.get("text") or "A cycle was run.")))


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
    if word == "release":
        raise TiresiasError(
            "Nothing was released: the controller runs in shadow mode and writes nothing to Slurm",
            "To release what an earlier one wrote, stop it and release again",
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
