"""Browsing: messages on a queue, looked at without touching them.

The rows come from the index in shared memory, in pieces, so that a queue of any length costs no
memory; what only the payload knows (ids, properties, body) is read when it is asked for.

Errors: NotOperator, UnknownQueue; BodyUnavailable, BodyDamaged of what is asked for: a message that
was finished meanwhile may have no payload any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omq.base.errors import BodyUnavailable
from omq.core.index.rows import (
    ENTRY_COLUMNS,
    MESSAGE_COLUMNS,
    EntryRow,
    MessageRow,
    RawEntry,
)
from omq.format.index import EntryState
from omq.format.pool import RecordFlag
from omq.ipc.client.payload_facts import PayloadFacts

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire
    from omq.ipc.client.rows_from_manager import Rows

_STATE: Final = ENTRY_COLUMNS.index("e_state")
_PRIORITY: Final = ENTRY_COLUMNS.index("e_priority")
_ATTEMPTS: Final = ENTRY_COLUMNS.index("e_attempts")
_DEFERS: Final = ENTRY_COLUMNS.index("e_retries")
_SUBMITTED: Final = ENTRY_COLUMNS.index("e_submitted")
_UNTIL: Final = ENTRY_COLUMNS.index("e_until")
_QPOOL, _FLAGS = MESSAGE_COLUMNS.index("m_qpool"), MESSAGE_COLUMNS.index("m_flags")
_SIZE, _CRC = MESSAGE_COLUMNS.index("m_size"), MESSAGE_COLUMNS.index("m_crc")
_WORD, _OFFSET = MESSAGE_COLUMNS.index("m_location"), MESSAGE_COLUMNS.index("m_offset")
_LENGTH: Final = MESSAGE_COLUMNS.index("m_length")


class Browsed(PayloadFacts):
    """A message on a queue as it was when it was looked at. `qpool_id`, `size`: as in Message.

    `priority`: 0 to 9 on this queue. `attempts`: hand-outs that failed; one under way is not
    counted. `defers`: how often a reader deferred it. `put_time_ns`: when it came on this queue,
    wall clock."""

    __slots__ = ("_entry", "_names", "_row", "_view")

    def __init__(self, wire: Wire, view: Rows, names: list[str], row: RawEntry) -> None:
        super().__init__()
        entry, message = row[1], row[3]
        self._wire, self._view, self._names, self._row = wire, view, names, row
        self._entry, self.entry = entry, row[0]
        self.qpool_id, self._flags = message[_QPOOL], message[_FLAGS]
        self.size, self._crc = message[_SIZE], message[_CRC]
        self.priority, self.defers = entry[_PRIORITY], entry[_DEFERS]
        self.put_time_ns, attempts = entry[_SUBMITTED], entry[_ATTEMPTS]
        self.attempts = attempts - (attempts > 0 and entry[_STATE] == EntryState.ACTIVE)

    def __repr__(self) -> str:
        return f"<Browsed {self.qpool_id} on {self.queue}, {self.state.name}>"

    @property
    def row(self) -> EntryRow:
        """All that the index says of it, for tools."""
        row = self._view.entry_of(self._row, self._names)
        if self._view.header is None:  # closed: so is what it has opened for this
            self._view.close()
        return row

    @property
    def message(self) -> MessageRow:
        """The part of `row` about the message, whatever queue it is on."""
        return self.row.message

    @property
    def queue(self) -> str:
        """The queue that was browsed."""
        return self._names[self._entry[0]]

    @property
    def state(self) -> EntryState:
        """READY, ACTIVE (in a reader's hands), DEFERRED or HELD."""
        return EntryState(self._entry[_STATE])

    @property
    def due_ns(self) -> int:
        """When it is handed out again, wall clock; 0 unless it is DEFERRED."""
        return self._entry[_UNTIL] if self.state is EntryState.DEFERRED else 0

    @property
    def noted(self) -> bool:
        """As in Message."""
        return bool(self._flags & RecordFlag.NOTED)

    @property
    def persistent(self) -> bool:
        """Whether it survives a restart of the manager."""
        return bool(self._flags & RecordFlag.PERSISTENT)

    @property
    def message_id(self) -> str:
        """As `put` returned it; read from the payload only if the submitter gave it."""
        if self._flags & RecordFlag.HAS_ID:
            return super().message_id
        return self._wire.link.id_prefix + f"{self.qpool_id:016x}"

    def _place(self) -> tuple[int, int, int]:
        message = self._row[3]
        return message[_WORD], message[_OFFSET], message[_LENGTH]

    def _read(self) -> bytes:
        word, offset, length = self._place()
        bodies = self._wire.bodies
        if not bodies.by_files:
            return bodies.fetch(self.qpool_id)[0]
        try:
            return bodies.files.read(word, offset, length, self.qpool_id)
        except BodyUnavailable:  # it has moved, or is gone
            return bodies.fetch(self.qpool_id)[0]

    def _where(self) -> str:
        return self._view.item_ref(*self._place(), 0)
