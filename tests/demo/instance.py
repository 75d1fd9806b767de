"""An omq instance of the demo's own: a new spool, `omrc --embedded` in it, and an orderly end.

The supervisor is started in a session of its own, so that Ctrl-C reaches the demo alone, which
then stops the instance in order with omshut. The spool is made here only as far as an administrator
would prepare one: an empty directory with its conf.

Errors: InstanceError with what happened and the last lines of the instance's logs.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from omq.base.paths import SpoolPaths, shipped_conf
from omq.services.daemon.run_state import State
from tests.demo.conf import write_conf
from tests.demo.processes import supervisor

LOG_LINES = 30
_START_WAIT_S = 120.0  # ten Python processes, one after the other, on a loaded machine
_STOP_WAIT_S = 150.0  # the drain and the stop time-outs of omq.conf, for each stage of the stop
_RESTARTS_MAX = 2  # at start: one may be bad luck, three are not
_POLL_S = 0.02
_ENDS_S = 5.0  # behind omshut, which returns when all is down
_SMTP_PORT_FILE = "smtp.port"  # one line: host, port
# What the user's shell may have set for another instance.
_FOREIGN_VARIABLES = ("OMQ_SPOOL", "OMQ_CONF")

Configure = Callable[[Path, Path, int], None]  # new conf directory, shipped one, port of the sink


class InstanceError(Exception):
    """The instance did not start, ended by itself, or did not stop."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A running instance."""

    paths: SpoolPaths
    output: Path  # what the supervisor prints
    process: subprocess.Popen[bytes]
    smtp_port: int

    @property
    def alive(self) -> bool:
        """Whether the supervisor still runs."""
        return self.process.poll() is None


@contextlib.contextmanager
def running_instance(spool: Path, output: Path, sink_port: int,
                     configure: Configure = write_conf) -> Iterator[Instance]:
    """Make a spool, start an instance in it, yield it when it is ready, stop it."""
    paths = SpoolPaths(spool)
    spool.mkdir(mode=0o750)
    configure(paths.conf, shipped_conf(), sink_port)
    process = _begin(paths, output)
    try:
        yield Instance(paths, output, process, _wait_ready(process, paths, output))
    finally:
        _stop(process, paths, output)


def started(paths: SpoolPaths, output: Path) -> Instance:
    """Start the instance of a spool that is there; when it is ready. `stopped` ends it."""
    process = _begin(paths, output)
    try:
        return Instance(paths, output, process, _wait_ready(process, paths, output))
    except InstanceError:
        process.kill()
        process.wait()
        raise


def stopped(instance: Instance) -> None:
    """Stop it in order."""
    _stop(instance.process, instance.paths, instance.output)


def _begin(paths: SpoolPaths, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as stream:
        return subprocess.Popen(
            [*command("omrc"), "--embedded", "--spool", str(paths.root)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )


def last_lines(path: Path, count: int = LOG_LINES) -> list[str]:
    """The end of a log file; nothing when there is no such file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="replace") as stream:
        return [line.rstrip("\n") for line in deque(stream, count)]


def command(name: str) -> list[str]:
    """How to call a command: with this very interpreter, as the supervisor calls its daemons."""
    return [sys.executable, "-P", "-m", "omq.cli.launch", name]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _FOREIGN_VARIABLES}


def _wait_ready(process: subprocess.Popen[bytes], paths: SpoolPaths, output: Path) -> int:
    """Wait until all daemons are started; returns the port of smtp.server."""
    deadline = time.monotonic() + _START_WAIT_S
    while time.monotonic() < deadline:
        state = supervisor(paths.run)
        children = state.children if state else ()
        if children and all(child.state is State.STARTED for child in children):
            port = _smtp_port(paths)
            if port:
                return port
        for child in children:
            if child.state is State.FAILED or child.restarts > _RESTARTS_MAX:
                raise _error(f"{child.name} does not start: {child.text}", paths, output)
        if _ended(process, _POLL_S):
            raise _error(f"omrc ended at start with code {process.returncode}", paths, output)
    raise _error(f"the instance was not ready after {_START_WAIT_S:.0f} s", paths, output)


def _smtp_port(paths: SpoolPaths) -> int:
    """The port that smtp.server listens on; 0 before it has written it."""
    try:
        return int((paths.run / _SMTP_PORT_FILE).read_text("ascii").split()[-1])
    except FileNotFoundError:
        return 0


def _stop(process: subprocess.Popen[bytes], paths: SpoolPaths, output: Path) -> None:
    """Stop in order; an instance that does not is killed, and that is an error."""
    if process.poll() is not None:
        return
    # Neither its exit code nor its time decides: whether the supervisor ended is looked at next.
    with contextlib.suppress(subprocess.TimeoutExpired), output.open("ab") as stream:
        subprocess.run(
            [*command("omshut"), "--spool", str(paths.root)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment(),
            timeout=_STOP_WAIT_S,
            check=False,
        )
    if _ended(process, _ENDS_S):
        return
    process.terminate()
    if not _ended(process, _STOP_WAIT_S):
        process.kill()
        process.wait()
    raise _error("omshut did not stop the instance; it was killed", paths, output)


def _ended(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _error(text: str, paths: SpoolPaths, output: Path) -> InstanceError:
    """The error with the end of the logs."""
    logs = [f"  {line}" for log in (paths.event_log, output) for line in last_lines(log)]
    return InstanceError("\n".join([text, f"the last lines of the logs in {paths.logs}:", *logs]))
