"""Starting a daemon in a process group of its own, and knowing when that group is empty.

The group is a session, too, as a service has it under systemd: Linux shares the processor out among
sessions (sched(7), autogroup), and all services of one would have the part of one program.

The group number cannot be used again while a member is unreaped, and the supervisor adopts orphans
(omq.services.daemon.process.adopt_orphans), so "no child in the group" is certain and a signal to
the group never meets a stranger.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

from omq.services.daemon.process import die_with_parent

Launch = Callable[[list[str], dict[str, str]], int]
"""argv, environment -> pid of a child that leads a new session and process group. OSError."""


def launch(argv: list[str], environ: dict[str, str], descriptors: tuple[int, ...] = ()) -> int:
    """Start a program as leader of a new session; its pid. OSError as exec gives it.

    It gets SIGTERM when this process dies, and inherits stdout, stderr and these `descriptors`.
    The caller reaps it with waitid.
    """
    supervisor = os.getpid()

    def prepare() -> None:
        # Between fork and exec: the parent's handlers would swallow a signal that comes now.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(supervisor)

    process = subprocess.Popen(
        argv, env=environ, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=prepare,
        cwd="/", pass_fds=descriptors,
    )  # fmt: skip
    # The supervisor reaps everything itself (it also adopts orphans): Popen must not wait.
    process.returncode = 0
    return process.pid


def group_empty(group: int) -> bool:
    """Whether no child of this process, own or adopted, is left in the process group."""
    try:
        os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False
