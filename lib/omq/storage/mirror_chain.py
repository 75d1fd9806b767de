"""Which blocks of a standby's journal show by themselves that they are whole.

An acknowledgement waits for one sync, that of the journal. How far it came is noted afterwards and
without a sync (storage.journal_synced), so a kill or a power cut may leave a mark that says less
than was acknowledged. What was acknowledged is on the disk, so the start takes the blocks after the
mark that follow without a gap and are whole, up to the first that is not: that one, and all after
it, was acknowledged to nobody.

Whole means more than a block's CRC, which covers its headers only. A block is `certain` when each
payload passes the CRC of its frame, and no message in it is born with a container, whose name may
not be on the disk. A payload that its submitter sent with a wrong CRC could not be told from a torn
one, so a group that has a block which is not certain gets a mark that is synced before the
acknowledgement.

Invariant: a block is judged by its bytes alone, so that it is judged the same way when it arrives
and after a power cut.

Errors: none.
"""

from __future__ import annotations

from dataclasses import replace

from omq.base.checksum import crc32c
from omq.format.journal import BLOCK, FRAME, PAYLOAD, PAYLOAD_AT, BlockHeader
from omq.format.standby import Synced
from omq.storage.journal_scan import FileScan, has_containers


def is_certain(header: BlockHeader, data: bytes | memoryview) -> bool:
    """See the module; of a block whose own CRC is right."""
    return not has_containers(data, header.count) and has_payloads(header, data)


def has_payloads(header: BlockHeader, data: bytes | memoryview) -> bool:
    """Whether each payload passes the CRC of its frame; of a block whose own CRC is right."""
    at, view, take = header.payload_at, memoryview(data), PAYLOAD.unpack_from
    for place in range(BLOCK.size + PAYLOAD_AT, at, FRAME.size):
        length, crc, offset = take(view, place)
        end = offset + length
        if length and (end > header.payload or crc32c(view[at + offset : at + end]) != crc):
            return False
    return True


def extended(mark: Synced, scan: FileScan) -> Synced:
    """The mark after the certain blocks that follow it. `scan`: of its file, from it on."""
    if mark.exact:
        return mark
    made = mark
    for block in scan:
        if (block.offset, block.header.first_lsn) != (made.offset, made.lsn + 1) or not is_certain(
                block.header, block.data):
            break
        made = replace(made, offset=block.offset + block.header.length,
                       lsn=block.header.last_lsn, durable=max(made.durable, block.header.durable),
                       last_crc=int.from_bytes(block.data[4:8], "little"))
    return made
