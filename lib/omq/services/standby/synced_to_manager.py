"""The sender for a standby says to the running queue manager how far that one has synced, where
replies wait for it (ipc.server.held_replies), and learns how far the disk here is, and how far
blocks lie in their file and are being synced.

It is a client of the manager, by a control connection of its own (manager_line). Until there is one
nothing is passed on, and replies wait. The first word names the standby (`standby`), the others
are requests of the manager's queue (SYNCED), which cost it no look at a connection.

Errors: none: a manager that is not there, or wants no standbys, is asked again later.
"""

from __future__ import annotations

from omq.base.paths import SpoolPaths
from omq.format.wire import Operation
from omq.ipc.client.control_line import Lost
from omq.services.standby.manager_line import ManagerLine


class SyncedToManager:
    """See the module. `durable`, `written`: the last LSNs that the manager has told; `within`: the
    journal file in which `written` lies; `descriptor`: readable when there is news, None: there is
    no connection."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._line = ManagerLine(paths)
        self._said: tuple[int, int] | None = None  # synced, told: as it was said last
        self.durable = self.written = self.within = 0

    @property
    def descriptor(self) -> int | None:
        """To wait for."""
        return self._line.descriptor

    def turn(self, member: str, synced: int, *, hears: bool = True) -> None:
        """Hear what is there, say what is new. `hears` False: nothing is there, as a look at the
        descriptor has shown."""
        if self._line.descriptor is None:
            if not self._line.connect(f"to-{member}"):
                return
            self._said, self.durable, self.written, self.within = None, 0, 0, 0
        try:
            if hears:
                self._hear()
            if self._is_news(synced):
                first, self._said = self._said is None, (synced, self._told)
                if first or not self._line.request(Operation.SYNCED, synced):
                    self._line.say({"op": "standby", "member": member, "synced": synced})
        except (OSError, Lost, ValueError):
            self.close()

    def _is_news(self, synced: int) -> bool:
        """What the standby has, or that it has all that was told, and the next may be told. What it
        has not acknowledged yet it will: one line for a group, not two."""
        if self._said is None or synced != self._said[0]:
            return True
        return self._told != self._said[1] and synced >= self._told

    @property
    def _told(self) -> int:
        return max(self.durable, self.written)

    def _hear(self) -> None:
        for said in self._line.heard():
            if said.get("status"):
                raise Lost("it waits for no standbys")
            self.durable = max(self.durable, int(said.get("durable", 0)))
            if int(said.get("written", 0)) > self.written:
                self.written, self.within = int(said["written"]), int(said.get("file", 0))

    def close(self) -> None:
        """The manager knows by that that this standby does not answer. What it has written and not
        synced is not sent without it: the next manager says what there is."""
        self._line.close()
        self.written = self.within = 0
