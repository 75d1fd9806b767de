"""The keeper of the lease says to the running queue manager until when it may acknowledge, and
which standbys etcd has in sync; it learns which ones should be (ipc.server.leased_replies).

    {"op": "lease", "until": monotonic ns, "term": 3, "in_sync": ["b"]}     null: anybody
    {"in_sync": ["b", "c"]}                                                 what etcd should have

The manager believes it of the spool's own user alone. A connection that ends takes nothing back:
the lease lasts until when it was said to.

Errors: none: a manager that is not there learns it later.
"""

from __future__ import annotations

from typing import Any, Final

from omq.base.paths import SpoolPaths
from omq.ipc.client.control_line import Lost
from omq.services.standby.lease import MEMBERS_MAX, Held, InSync
from omq.services.standby.manager_line import ManagerLine
from omq.storage.instance_file import is_member_name

NAME: Final = "lease"
TIMEOUT_S: Final = 0.5  # for a manager to let it in: the lease waits meanwhile


class LeaseToManager:
    """See the module."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._line = ManagerLine(paths, TIMEOUT_S)
        self._said: tuple[int, InSync] | None = None
        self._wanted: tuple[InSync] | None = None

    @property
    def descriptor(self) -> int:
        """To wait for; -1: there is no connection."""
        return -1 if self._line.descriptor is None else self._line.descriptor

    def turn(self, held: Held, in_sync: InSync) -> None:
        """Say what is new, and hear."""
        if self._line.descriptor is None:
            if not self._line.connect(NAME):
                return
            self._said = self._wanted = None
        try:
            for said in self._line.heard():
                if said.get("status"):
                    raise Lost("it refuses")
                self._wanted = (_members(said["in_sync"]),)
            if self._said != (held.until, in_sync):
                self._say(held.until, held.term, in_sync)
        except (OSError, Lost, ValueError, TypeError, KeyError):
            self.close()

    def wanted(self, in_sync: InSync) -> tuple[InSync] | None:
        """What etcd should have in place of this; None: it has it."""
        if self._wanted is not None and self._wanted != (in_sync,):
            return self._wanted
        return None

    def over(self, term: int, in_sync: InSync) -> None:
        """The lease is gone: at once, and not when it would have ended."""
        if self._line.descriptor is None and not self._line.connect(NAME):
            return
        try:
            self._say(0, term, in_sync)
        except (OSError, Lost):
            self.close()

    def _say(self, until: int, term: int, in_sync: InSync) -> None:
        self._line.say({"op": "lease", "until": until, "term": term,
                        "in_sync": None if in_sync is None else sorted(in_sync)})
        self._said = until, in_sync

    def close(self) -> None:
        """Nothing is taken back by it."""
        self._line.close()


def _members(found: Any) -> InSync:
    if found is None:
        return None
    if not isinstance(found, list) or len(found) > MEMBERS_MAX or not all(
            isinstance(each, str) and is_member_name(each) for each in found):
        raise ValueError("members that are none")
    return frozenset(found)
