"""STANDBY=1: the instance has a standby that its replies wait for. In the middle of the feed every
process of the primary is killed, its spool is removed, the standby is promoted and started, and the
feed goes on with it.

The Maildirs lie outside of the spool, for mail that is delivered is not the journal's. A mail that
the sink had taken right before the kill is sent again if its reader had not said so yet (RFC 1047):
such a double is listed, and not held against omq. Everything else must be there exactly once.

Errors: TakeOverError: a step did not come to its end; the run then fails.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from omq.base.paths import SpoolPaths
from omq.ipc.server.objects import ObjectList
from tests.demo.alongside import Alongside
from tests.demo.arrivals import id_in_header, sink_arrivals, split_trace
from tests.demo.feed import Progress
from tests.demo.instance import Instance, InstanceError, command, environment, started, stopped
from tests.demo.transaction import Outcome
from tests.waiting import pause

ACCEPTED_SHARE: Final = 0.4  # of all messages, at the kill
SETTLED_S: Final = 5.0  # so long a reader may take to say, on a loaded machine, what it has sent
_WAIT_S: Final = 120.0
_POLL_S: Final = 0.05
MEMBER: Final = "b"


class TakeOverError(Exception):
    """A step of the take-over did not come to its end."""


def wait_for_standbys(conf: Path, maildirs: Path) -> None:
    """The primary's configuration: replies wait for one standby."""
    with (conf / "omq.conf").open("a", encoding="utf-8") as stream:
        stream.write("\n[standby]\nstandby_sync = 1\n")
    put_maildirs(conf, maildirs)


def put_maildirs(conf: Path, maildirs: Path) -> None:
    """Outside of the spool."""
    path = conf / "omq.conf"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[mail]\n", f"[mail]\nmaildir_root = {maildirs}\n", 1),
                    encoding="utf-8")


class TakeOver(Alongside):
    """See the module. `current`: the instance that serves, or is to; a thread does the rest."""

    def __init__(self, primary: Instance, base: Path, feed: Progress,
                 outcomes: Mapping[str, Outcome], say: Callable[[str], None]) -> None:
        super().__init__("takeover")
        self.current = primary
        self._primary, self._base, self._feed = primary, base, feed
        self._outcomes, self._say = outcomes, say
        self._spool, self._log = base / "standby", base / "standby.log"
        self._follower: subprocess.Popen[bytes] | None = None
        self._promoted: Instance | None = None

    def make(self) -> None:
        """A standby that has everything, before the first mail."""
        conf = self._primary.paths.conf
        self._omq("init", "--member", MEMBER, conf, "--", *command("omq"), "standby", "send",
                  "--spool", str(self._primary.paths.root))
        shutil.copytree(conf, self._spool / "conf", dirs_exist_ok=True)
        text = (self._spool / "conf/omq.conf").read_text(encoding="utf-8")
        (self._spool / "conf/omq.conf").write_text(
            text.replace("standby_sync = 1\n", ""), encoding="utf-8")
        with self._log.open("ab") as log:
            self._follower = subprocess.Popen(
                [*command("omq"), "standby", "follow", "--spool", str(self._spool)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment())
        self._until(lambda: self._protection() == "synced", "be protected by the standby")
        self._say(f"a standby follows in {self._spool}: what is accepted is on both")

    def close(self) -> None:
        """Stop what runs."""
        if self._follower is not None and self._follower.poll() is None:
            self._follower.kill()
            self._follower.wait()
        if self._promoted is not None:
            stopped(self._promoted)

    def _happen(self) -> None:
        count = int(self._feed.counts().total * ACCEPTED_SHARE)
        if not self._feed.wait_accepted(count):
            raise TakeOverError(f"the feed ended before {count} messages were accepted")
        began = time.monotonic()
        assert self._follower is not None
        killed = kill_all(self._primary.process.pid) + kill_all(self._follower.pid, but_it=True)
        self._primary.process.wait()
        self._may_come_again()
        ObjectList(self._primary.paths).clear_left_overs(os.geteuid())  # a lost host has none
        counts = self._feed.counts()
        shutil.rmtree(self._primary.paths.root)
        self._say(f"killed all {killed} processes of the primary at {counts.accepted} of "
                  f"{counts.total} accepted, and removed its spool")
        self._follower.send_signal(signal.SIGTERM)
        if self._follower.wait(_WAIT_S):
            raise TakeOverError(f"the standby ended with code {self._follower.returncode}; see "
                                f"{self._log}")
        self._omq("promote", None)
        paths = SpoolPaths(self._spool)
        try:
            self._promoted = self.current = started(paths, self._base / "omrc-b.log")
        except InstanceError as error:
            raise TakeOverError(str(error)) from error
        self._say(f"the standby is the primary, and serves after {time.monotonic() - began:.1f} s")

    def _may_come_again(self) -> None:
        """Mail that the sink took so late that its reader may not have said so."""
        since = time.time() - SETTLED_S
        for arrival in sink_arrivals(self._base / "sink"):
            if arrival.path.stat().st_mtime < since:
                continue
            found = self._outcomes.get(id_in_header(split_trace(arrival.data)[1]))
            if found is not None:
                found.in_doubt += 1

    def _protection(self) -> str:
        try:
            found = json.loads(self._primary.paths.protection.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ""
        return str(found["state"])

    def _omq(self, name: str, *words: object) -> None:
        """A command of `omq standby` on the standby; a path among its words is its conf."""
        said = [str(word) for word in words if isinstance(word, str)]
        conf = [str(word) for word in words if isinstance(word, Path)]
        own = said.index("--") if "--" in said else len(said)
        done = subprocess.run(
            [*command("omq"), "standby", name, *said[:own], "--spool", str(self._spool),
             *(["--conf", *conf] if conf else []), *said[own:]], env=environment(),
            capture_output=True, text=True, timeout=_WAIT_S, check=False)
        if done.returncode:
            raise TakeOverError(f"omq standby {name}: {done.stderr}")

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not holds():
            if self._stopping.wait(_POLL_S) or time.monotonic() > deadline:
                raise TakeOverError(f"waited to {what}; see {self._log}")


def kill_all(pid: int, *, but_it: bool = False) -> int:
    """SIGKILL to a process and all that it has started; how many. It is stopped first, so that it
    starts none meanwhile. `but_it`: to those below alone."""
    if not but_it:
        os.kill(pid, signal.SIGSTOP)
    count = 0
    while below := _below(pid):
        for each in below:
            try:
                os.kill(each, signal.SIGKILL)
                count += 1
            except ProcessLookupError:
                continue  # it was faster
        if but_it:
            return count
        if all(_is_dead(each) for each in below):
            break
        pause()
    if not but_it:
        os.kill(pid, signal.SIGKILL)
        count += 1
    return count


def _below(pid: int) -> list[int]:
    """Children, theirs, and so on; those that are not dead."""
    out = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii")
            for child in map(int, children.split()):
                if not _is_dead(child):
                    out += [child, *_below(child)]
    except FileNotFoundError:
        return out
    return out


def _is_dead(pid: int) -> bool:
    """Gone, or waiting for a parent that does not look."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return said[0] in "ZX"
