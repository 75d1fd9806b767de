"""The console of the demo's instance, if what omq-web needs is installed: its address is told, and
it shows the run while it goes.

It may look and act; who logs in is an account of this host without rights of its own (nobody), with
a password of this run alone. What the console's users can do they can do to this instance, for the
minutes that it lives, from this host.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import pause

_START_WAIT_S = 30.0
_NEEDS = ("aiohttp", "argon2", "jinja2")
_ACCOUNTS = ("nobody", "daemon", "bin")


@contextmanager
def console(spool: Path, conf: Path, output: Path) -> Iterator[str]:
    """A line for the user while it runs."""
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    account = next(filter(_somebody_else, _ACCOUNTS), "")
    if missing or not account:
        why = f"the package {missing[0]} is missing" if missing else "no account could log in"
        yield f"no console: {why} (pip install 'omq-suite[web]')"
        return
    password = secrets.token_urlsafe(9)
    _prepare(conf, account, password)
    file = spool / "run/web.port"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "omq.cli.launch", "omq-web", "--spool", str(spool)],
            stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if name != "OMQ_CONF"},
            start_new_session=True)
    try:
        ends = time.monotonic() + _START_WAIT_S
        while not file.exists() and process.poll() is None and time.monotonic() < ends:
            pause()
        if file.exists():
            host, port = file.read_text("ascii").split()
            yield f"the console: http://{host}:{port}/ (name {account}, password {password})"
        else:
            yield f"no console: {output} says why"
    finally:
        process.terminate()
        process.wait(_START_WAIT_S)


def _somebody_else(name: str) -> bool:
    """Whether this is an account that is neither ours nor root's."""
    try:
        return pwd.getpwnam(name).pw_uid not in (0, os.geteuid())
    except KeyError:
        return False


def _prepare(conf: Path, account: str, password: str) -> None:
    import argon2

    users = conf / "web.users"
    users.touch(mode=0o600)
    users.write_text(f"{account}:{argon2.PasswordHasher().hash(password)}\n", encoding="ascii")
    with (conf / "omq.conf").open("a", encoding="ascii") as file:
        file.write(f"\n[web]\nweb_users = {users}\nweb_listen_port = 0\n")
    (conf / "authority.conf").write_text(f"[console]\nuser:{account} = admin\n", encoding="ascii")
