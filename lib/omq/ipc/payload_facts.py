"""What a payload says of its message: ids, properties, the queue for replies, the body. The same
for a message in hand and for one that is only looked at.

The payload is read and checked against the submitter's CRC on first use.
Errors: BodyUnavailable, BodyDamaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omq.base import names
from omq.base.errors import BodyDamaged
from omq.fast.handed import Facts
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.message import Descriptor
from omq.format.wire import GivenFlag
from omq.ipc.bodies import check_container

if TYPE_CHECKING:
    from omq.ipc.client_wire import Wire

_CONTAINER: Final = int(GivenFlag.CONTAINER)


class PayloadFacts(Facts):
    """See the module. A subclass knows how its payload is read, and its CRC."""

    __slots__ = ()
    _wire: Wire

    def _where(self) -> str:
        raise NotImplementedError

    def _damaged(self, got: int) -> BodyDamaged:
        return BodyDamaged(qpool_id=self.qpool_id, where=self._where(), expected=self._crc, got=got)

    def _descriptor(self) -> Descriptor:
        payload = message_format.decode(self._load())
        if isinstance(payload, Finding):
            raise BodyDamaged(qpool_id=self.qpool_id, where="its descriptor", expected=self._crc,
                              got=0)
        return payload.descriptor

    @property
    def body(self) -> bytes:
        """The bytes that were put. BodyUnavailable, BodyDamaged."""
        raw = self._load()
        content = raw[self._body_at :]
        if self._flags & _CONTAINER:
            reference = content.decode("ascii", "replace")
            content = self._wire.bodies.container(reference, self.size, self.qpool_id)
            check_container(content, self._descriptor().body_crc, self.qpool_id, reference)
        return content

    @property
    def properties(self) -> dict[str, str]:
        """What the submitter said of it, as names and texts."""
        raw = self._load()
        found = message_format.decode_properties(raw[self._properties_at : self._body_at])
        if isinstance(found, Finding):
            raise BodyDamaged(qpool_id=self.qpool_id, where="its properties", expected=self._crc,
                              got=0)
        return found

    @property
    def message_id(self) -> str:
        """As `put` returned it: 48 hexadecimal digits, or the text that the submitter gave."""
        given = self._descriptor().message_id
        return (names.message_id_text(given) if any(given)
                else self._wire.link.id_prefix + f"{self.qpool_id:016x}")

    @property
    def correlation_id(self) -> bytes:
        """The bytes that the submitter gave, b"" if none."""
        return self._descriptor().correlation_id.rstrip(b"\0")

    @property
    def correlation(self) -> str:
        """The same as text: of a reply, the `message_id` of what it answers; "" if none."""
        given = self._descriptor().correlation_id
        return names.message_id_text(given) if any(given) else ""

    @property
    def reply_to(self) -> str:
        """The queue that wants the reply; "" if none."""
        number = self._descriptor().reply_to
        return self._wire.queue_name(number) if number else ""
