"""The controller: its user and rights, its mode, and the permissions of its files."""

from __future__ import annotations

from pathlib import PurePosixPath

from slurm_tiresias.daemon.state_dir import OTHERS_WRITE, is_anybodys
from slurm_tiresias.doctor.checks.files import SLURM_CONF, TIRESIAS_TOML, UNIT, installing, known
from slurm_tiresias.doctor.finding import Finding, Mend, check, error, note, ok, warning
from slurm_tiresias.doctor.seen import Place, Seen
from slurm_tiresias.profiler import public_copy
from slurm_tiresias.settings.controller import ControllerConfig
from slurm_tiresias.slurm.commands import ADMIN_LEVELS
from slurm_tiresias.status.ask import SOCKET_NAME
from slurm_tiresias.status.published import STOPPED

PRIVATE = ("lock",)
"""Files in the state directory that other users must not read, besides all ledgers and profile
stores."""

EVERYBODYS = (SOCKET_NAME,)
"""Every user may connect to the socket; the controller decides what each user is told."""

STATE_DIR = ControllerConfig().state_dir
NUDGE_FILE = ControllerConfig().nudge_file
NUDGE = "/etc/slurm-tiresias/nudge"
DEFAULT_USER = "slurm"
"""The ``User=`` in etc/tiresias-slurm.service."""


def _slurm_user(seen: Seen) -> tuple[str, int | None]:
    """Return the name and uid of SlurmUser from ``slurm(64030)``; slurm.conf has only the name."""
    name, _, number = known(seen).text("SlurmUser").partition("(")
    digits = number.rstrip(")")
    return name or "root", int(digits) if digits.isdigit() else None


def _is_privileged(seen: Seen) -> bool:
    name, number = _slurm_user(seen)
    return seen.controller_user == name or seen.controller_user_id in (0, number)


@check("settings")
def _rights(seen: Seen) -> Finding:
    """Only SlurmUser, root and operators may set priorities and requeue others' jobs."""
    name, _ = _slurm_user(seen)
    unit = Mend(UNIT, "User", name, section="[Service]")
    if not seen.controller_user:
        if name == DEFAULT_USER:
            return ok(f"no controller has run; its unit names SlurmUser, {name}")
        return note(f"no controller has run; SlurmUser is {name}, the unit names slurm", unit)
    if _is_privileged(seen):
        return ok(f"the controller runs as {seen.controller_user}")
    if seen.admin_level in ADMIN_LEVELS:
        return ok(f"the controller runs as {seen.controller_user}, {seen.admin_level}")
    problem = (
        f"{seen.controller_user}, who owns the state directory, is neither SlurmUser nor operator"
    )
    if seen.admin_level:
        # Accounting knows this user, so the service can keep it and needs only a higher AdminLevel.
        level = f"sacctmgr modify user {seen.controller_user} set AdminLevel=Operator"
        return error(problem, do=(level,))
    return error(problem, unit)


@check("settings")
def _rate_limit(seen: Seen) -> Finding | None:
    """slurmctld delays frequent requests of users other than SlurmUser and root."""
    if not seen.differences.limits_requests:
        return None
    if "rl_enable" not in known(seen).options("SlurmctldParameters"):
        return ok("slurmctld does not limit the rate of requests")
    if not seen.controller_user or _is_privileged(seen):
        return ok("rl_enable is set; it spares SlurmUser and root")
    parameters = known(seen).option_number("SlurmctldParameters", "rl_bucket_size", 30)
    return warning(
        f"rl_enable is set, and bounds {seen.controller_user} to {parameters:.0f} requests at once",
        Mend(UNIT, "User", _slurm_user(seen)[0], section="[Service]"),
    )


@check()
def _state_dir(seen: Seen) -> Finding:
    """A user who can write there could replace the controller's files; one who can read the ledger
    sees all users' jobs."""
    path = seen.config.controller.state_dir
    if seen.state_dir is None:
        return ok(f"{path} is not there yet; the service makes it")
    if is_anybodys(seen.state_dir.owner_id, seen.state_dir.mode, seen.state_dir.owner_id):
        return error(
            f"others may write into {path} (mode {seen.state_dir.mode:o})",
            do=(f"chmod 755 {path}",),
        )
    if open_ones := [place for place in seen.state_files if _too_open(place, seen)]:
        files = " ".join(place.path for place in open_ones)
        return error(f"readable to others: {files}", do=(f"chmod 600 {files}",))
    return ok(f"{path} is {seen.state_dir.owner}'s own")


def _too_open(place: Place, seen: Seen) -> bool:
    """Whether the permissions give other users more access than the file allows."""
    name = place.path.rpartition("/")[2]
    if name in EVERYBODYS:
        return False
    databases = name.startswith(("ledger", "profiles")) and name != public_copy.FILE_NAME
    private = name in PRIVATE or databases
    return bool(place.mode & (0o077 if private else OTHERS_WRITE))


@check("settings")
def _slurm_state(seen: Seen) -> Finding | None:
    """slurmctld deletes foreign files in its own state folder."""
    location = known(seen).text("StateSaveLocation").rstrip("/")
    mine = seen.config.controller.state_dir.rstrip("/")
    if not location:
        return None
    if mine == location:
        return error(
            f"controller.state_dir is StateSaveLocation, {location}",
            Mend(TIRESIAS_TOML, "state_dir", f'"{STATE_DIR}"', section="[controller]"),
        )
    return ok(f"apart from StateSaveLocation, {location}")


@check()
def _controller(seen: Seen) -> Finding:
    """Without a controller, Slurm schedules by the priorities last written."""
    found = seen.controller
    if found is None or found.mode == STOPPED:
        return note("no controller runs", do=("systemctl enable --now tiresias-slurm",))
    if found.stale:
        return error(
            f"the controller's last good cycle was {found.quiet_s:.0f} s ago",
            do=("tiresias-slurm status", "systemctl status tiresias-slurm"),
        )
    return ok(f"runs in {found.mode} mode" + (f" on {found.host}" if found.host else ""))


@check()
def _nudge_file(seen: Seen) -> Finding:
    """slurmctld's hooks write this file, and would hang if a shared file system hangs."""
    controller = seen.config.controller
    if not controller.nudge_file:
        return ok("no nudges: the controller looks in its interval")
    shared = PurePosixPath(controller.state_dir)
    if controller.standby and shared in PurePosixPath(controller.nudge_file).parents:
        return error(
            f"{controller.nudge_file} is in the state directory that two controllers share",
            Mend(TIRESIAS_TOML, "nudge_file", f'"{NUDGE_FILE}"', section="[controller]"),
            do=("the same path in job_submit.lua (nudge_file) and nudge (TIRESIAS_NUDGE_FILE)",),
        )
    return ok(f"Slurm's hooks leave {controller.nudge_file}")


@check("settings")
def _epilog_nudge(seen: Seen) -> Finding:
    """With it, idle GPUs are used at once instead of in the next cycle."""
    has = known(seen)
    if has.text("EpilogSlurmctld"):
        return ok(f"EpilogSlurmctld={has.text('EpilogSlurmctld')}")
    return note(
        "nothing tells the controller that a job has ended",
        Mend(SLURM_CONF, "EpilogSlurmctld", NUDGE),
        do=installing("nudge", NUDGE, mode="755"),
    )
