"""What must be so before `omq setup` writes anything: each check says what is wrong and what to do.

Errors: NoPermission, SetupUnfit.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
import subprocess
from pathlib import Path
from typing import Final

from omq.base.errors import NoPermission, SetupUnfit, SysctlTooLow
from omq.services.supervise.systemctl import BOOTED

SYSTEMD_MIN: Final = 251
"""Times in seconds from systemctl came with it."""
SYSTEM_UID_MAX: Final = 999
"""logind removes the System V objects of other users at their logout (RemoveIPC=)."""
HIDDEN: Final = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))
"""The daemons do not see these: ProtectHome=, PrivateTmp=."""


def check_root() -> None:
    """Only root installs units."""
    if os.geteuid() != 0:
        raise NoPermission(action="install units", what=f"uid {os.geteuid()}")


def check_systemd() -> None:
    """systemd is the init here and new enough."""
    if not BOOTED.is_dir():
        raise SetupUnfit(reason="systemd is not the init of this machine",
                         advice="use 'omrc --embedded' here")
    said = subprocess.run(["systemctl", "--version"], check=False, capture_output=True, text=True)
    match = re.match(r"systemd (\d+)", said.stdout)
    version = int(match[1]) if match else 0
    if version < SYSTEMD_MIN:
        raise SetupUnfit(reason=f"systemd is version {version or 'unknown'}",
                         advice=f"version {SYSTEMD_MIN} or newer is needed")


def check_interpreter(python: Path) -> None:
    """The daemons' user can reach the interpreter and this package."""
    package = Path(__file__).resolve().parents[1]
    for path in dict.fromkeys((python, python.resolve(), package)):
        hidden = next((each for each in HIDDEN if path.is_relative_to(each)), None)
        advice = "make the virtual environment in /opt/omq: python3 -m venv /opt/omq"
        if hidden is not None:
            raise SetupUnfit(reason=f"{path} is below {hidden}, which daemons do not see",
                             advice=advice)
        for folder in (path, *path.parents):
            if not stat.S_IMODE(folder.stat().st_mode) & stat.S_IXOTH and folder.is_dir():
                raise SetupUnfit(reason=f"{folder} is closed to other users", advice=advice)


def check_user(user: str) -> None:
    """A user that exists is a system user; one that does not is made (sysusers.d)."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return
    if uid == 0:
        raise SetupUnfit(reason="the daemons must not run as root", advice="name another --user")
    if uid > SYSTEM_UID_MAX:
        raise SetupUnfit(
            reason=f"user {user} has uid {uid}, above {SYSTEM_UID_MAX}: at its logout logind would"
            " remove the queues in shared memory (RemoveIPC)", advice="name a system user")


def check_spool(spool: Path, user: str) -> None:
    """A spool that exists belongs to the user."""
    if not spool.exists():
        return
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        uid = -1
    owner = spool.stat().st_uid
    if owner != uid:
        raise SetupUnfit(reason=f"{spool} belongs to uid {owner}, not to {user}",
                         advice=f"chown -R {user}: {spool}, or move it away")


def check_sysctl(key: str, needed: int) -> None:
    """kernel.KEY is in force. SysctlTooLow."""
    found = int(Path("/proc/sys/kernel", key).read_text(encoding="ascii"))
    if found < needed:
        raise SysctlTooLow(key=key, found=found, needed=needed, what="the request queue")


def group_of(user: str) -> str:
    """The primary group of an existing user; a user that is made gets one of its own name."""
    try:
        return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    except KeyError:
        return user
