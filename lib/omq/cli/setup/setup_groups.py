"""The groups of an installed instance: `omq setup` names them in omq.conf and moves former clients.

    USER-clients      may connect (sysusers.d makes it)
    USER-operators    may look at the index

An omq.conf that names one of the two is its author's business and stays. Of an older installation,
whose clients were the members of the service user's own group, the members become clients of the
new one, so that their programs go on; nobody becomes an operator unasked.

Errors: ConfigError, FileNotWritten, SetupUnfit.
"""

from __future__ import annotations

import grp
import re
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from omq.base.errors import SetupUnfit
from omq.base.limits import CONF_FILE_BYTES_MAX
from omq.base.settings_file import load_settings
from omq.cli.operate.services_edit import replace_file, with_key
from omq.storage import durable
from omq.storage.files import read_file

REQUEST_QUEUE_BYTES: Final = 1024 * 1024
_SECTION: Final = "ipc"
_HEADING: Final = re.compile(r"^\s*\[\s*ipc\s*\]\s*$", re.MULTILINE)


def clients_of(user: str) -> str:
    return f"{user}-clients"


def operators_of(user: str) -> str:
    return f"{user}-operators"


def first_conf(user: str, port: int | None = None) -> str:
    """The omq.conf of a new installation; `port`: of its SMTP server, if not the default one."""
    mail = "" if port is None else f"""\
[mail]
# One that no other instance of this machine has.
smtp_listen_port = {port}
"""
    return f"""\
# What is otherwise on this machine; every key with its default and its reason is printed by:
#   python -m omq.base.settings_file
[ipc]
# The requests of all clients that wait at once. The kernel must allow it (kernel.msgmnb).
request_queue_bytes = {REQUEST_QUEUE_BYTES}
# Who may connect: add users with 'gpasswd -a NAME GROUP'; authority.conf says what they may do.
clients_group = {clients_of(user)}
# Who may look at the queues with omqdump, omtop, omqwhy ...; bodies stay closed to them.
operators_group = {operators_of(user)}
{mail}"""


def with_groups(text: str, user: str) -> str:
    """The omq.conf of an older installation, with the two keys more."""
    if not _HEADING.search(text):
        text = f"{text.rstrip()}\n\n[{_SECTION}]\n".lstrip("\n")
    text = with_key(text, _SECTION, "operators_group", operators_of(user))
    return with_key(text, _SECTION, "clients_group", clients_of(user))


def to_move(conf: Path, user: str, group: str) -> list[str] | None:
    """Users of the old group who are to be clients; None when nothing is to be changed."""
    if not (conf / "omq.conf").exists():
        return None
    settings = load_settings(conf)
    if settings.clients_group or settings.operators_group:
        return None
    try:
        return sorted(set(grp.getgrnam(group).gr_mem) - {user})
    except KeyError:
        return []


def write_conf(conf: Path, user: str, group: str, tell: Callable[[str], None], undo: ExitStack,
               port: int | None = None) -> None:
    """Name the groups in omq.conf, and move members; `tell` hears what was done."""
    path = conf / "omq.conf"
    members = to_move(conf, user, group)
    if not path.exists():
        replace_file(path, first_conf(user, port).encode("ascii"))
        undo.callback(durable.unlink, path)
    elif members is not None:
        before = read_file(path, CONF_FILE_BYTES_MAX)
        undo.callback(replace_file, path, before)
        replace_file(path, with_groups(before.decode("utf-8"), user).encode("utf-8"))
        tell(f"{path}: clients_group and operators_group are set")
        for name in members:
            _add(name, clients_of(user))
            tell(f"{name}, of group {group}, is in {clients_of(user)} now")
        if members:
            tell("looking (omqdump, omtop, omqwhy) needs more: "
                 f"gpasswd -a NAME {operators_of(user)}")


def _add(name: str, group: str) -> None:
    result = subprocess.run(["usermod", "-a", "-G", group, name], check=False,
                            capture_output=True, text=True)
    if result.returncode:
        raise SetupUnfit(reason=f"usermod says: {result.stderr.strip()}",
                         advice=f"add {name} to {group} and run omq setup again")
