"""An instance of a service user, with clients and operators in groups of their own; needs root.

Users are numbers that no host has. What a member does runs in a forked child with that uid and its
groups only; an exception in it fails the test with its traceback.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omq.cli import launch
from tests.process.instance import MANAGER, Instance
from tests.process.ipc_space import ipc_space
from tests.process.loaded import complete_conf, load_all, others_can_read
from tests.process.processes import WAIT_S, Child, start

SERVICE, MEMBER, OTHER, OPERATOR = 64010, 64011, 64012, 64013
CLIENTS, OPERATORS = 64020, 64021
PROGRAMS = (MANAGER, "pool.writer", "idel.server", "omstat", "omqdump", "omqcheck", "omqwhy",
            "omqshape", "omscan")
AUTHORITY = f"[A]\nuser:{MEMBER} = put get browse\n[B]\nuser:{OTHER} = put get\n"


def preload() -> None:
    """The interpreter may lie where other users do not come to: all is imported before the fork."""
    for name in PROGRAMS:
        launch._target(name)
    load_all()


def become(uid: int, groups: Iterable[int] = ()) -> None:
    """This process is that user from now on."""
    os.setgroups(list(groups))
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


class TrustInstance(Instance):
    """See the module."""

    def __init__(self, root: Path, space: object) -> None:
        preload()
        super().__init__(root, space)  # type: ignore[arg-type]
        self.members = root / "members"
        self.settings(clients_group=CLIENTS, operators_group=OPERATORS)
        (self.conf / "authority.conf").write_text(AUTHORITY)
        complete_conf(self.conf)
        self.own()
        for folder in (root, self.conf):
            folder.chmod(0o755)

    def own(self) -> None:
        """All of the spool is the service user's."""
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, SERVICE, SERVICE, follow_symlinks=False)

    def start(self, *programs: str, fault: str = "") -> Child:
        """Daemons of the service user."""
        environment = {"OMQ_FAULT": fault, "OMQ_FAULT_LOG": str(self.fault_log)} if fault else {}
        arguments = ["--spool", str(self.root), "--conf", str(self.conf)]
        child = None
        for program in programs or (MANAGER,):
            def run(program: str = program) -> int:
                become(SERVICE, (CLIENTS, OPERATORS))
                return launch.run(program, arguments)

            child = start(program, run, output=self.output, environment=environment)
            self.children[program] = child
        assert child is not None
        return child

    def begin(self, uid: int, work: Callable[[], object], groups: Iterable[int] = (CLIENTS,)
              ) -> Child:
        """Somebody does `work`."""
        def run() -> int:
            become(uid, groups)
            work()
            return 0

        return start(f"user {uid}", run, output=self.members)

    def join(self, child: Child) -> None:
        assert child.wait(WAIT_S) == 0, self.members.read_text() + self.said()

    def as_user(self, uid: int, work: Callable[[], object], groups: Iterable[int] = (CLIENTS,)
                ) -> None:
        """The same, to its end."""
        self.join(self.begin(uid, work, groups))


@contextmanager
def trust_instance() -> Iterator[TrustInstance]:
    """See the module; it ends as every instance does. Not in a folder of pytest: each session
    closes those to other users."""
    if os.geteuid():
        pytest.skip("other users need root")
    if not others_can_read():
        pytest.skip("other users cannot read this checkout: put it where they can")
    with tempfile.TemporaryDirectory(prefix="omq-") as place, ipc_space() as space:
        made = TrustInstance(Path(place), space)
        try:
            yield made
            made.finish()
        finally:
            made.abandon()
