"""A fork server with one more daemon, `probe`, which writes down what it is: `probe FILE [DEED]`.

`python -P -m fork_probe [arguments of the fork server]`; `python -P -m omq.cli.launch` does not
know the probe, so an executed one is `run_probe` below. PROBE in the environment makes the fork
server fail, or import the real daemons as well, which takes longest.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import uuid
from pathlib import Path

from omq.cli import fork_server, launch

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE,
           signal.SIGABRT)


def probe(arguments: list[str]) -> int:
    """The daemon."""
    path, deed = Path(arguments[0]), arguments[1]
    part = sys.modules.get("probe_part")
    facts = {
        "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0),
        "session": os.getsid(0), "cwd": str(Path.cwd()), "argv": sys.argv, "umask": os.umask(0),
        "files": {name: _target(name) for name in os.listdir("/proc/self/fd")},
        "tasks": len(os.listdir("/proc/self/task")),
        "threads": [each.name for each in threading.enumerate()],
        "handlers": [repr(signal.getsignal(number)).split(" at ")[0] for number in HANDLED],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "wakeup": signal.set_wakeup_fd(-1), "faulthandler": faulthandler.is_enabled(),
        "environ": dict(os.environ), "limits": Path("/proc/self/limits").read_text(),
        "random": random.random(), "uuid": str(uuid.uuid4()), "name": tempfile.mktemp(),
        "part": getattr(part, "VALUE", None),
    }
    path.write_text(json.dumps(facts))  # a pipe, where the test waits for it
    if deed == "hang":
        signal.pause()
    return int(deed)


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:  # of the listing itself
        return ""


def run_probe() -> int:
    """The probe as a program of its own: what a forked one is compared with."""
    launch.COMMANDS["probe"] = "fork_probe:probe"
    return launch.run("probe", sys.argv[1:])


def _no_fork_in_the_middle() -> None:
    me, fork = os.getpid(), os.fork

    def refused() -> int:
        if os.getpid() != me:
            raise BlockingIOError(11, "no more processes")
        return fork()

    os.fork = refused


if __name__ == "__main__":
    if os.environ.get("PROBE") == "executed":
        sys.exit(run_probe())
    if os.environ.get("PROBE") != "whole":
        launch.COMMANDS.clear()
    launch.COMMANDS["probe"] = "fork_probe:probe"
    if os.environ.get("PROBE") == "part":
        importlib.import_module("probe_part")
    elif os.environ.get("PROBE") == "thread":
        threading.Thread(target=signal.pause, daemon=True).start()
    elif os.environ.get("PROBE") == "fork":
        _no_fork_in_the_middle()
    elif os.environ.get("PROBE") == "ends":
        sys.exit(1)
    sys.exit(fork_server.main())
