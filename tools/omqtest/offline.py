"""What a spool holds: recover it as a starting queue.manager does, and list its messages.

Works on the files alone, in this process. Errors: what recovery raises; a message whose body cannot
be read is listed as bad.
"""

from __future__ import annotations

from pathlib import Path

from omq.base import clock
from omq.base.checksum import crc32c
from omq.base.errors import OmqError
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.core.engine.state import IDEL, Core
from omq.core.index.tables import Tables
from omq.core.load.rebuild import load
from omq.core.load.recovery import recover
from omq.format import message as message_format
from omq.format.findings import Finding
from omq.format.wire import GivenFlag
from omq.storage import containers, durable
from omq.storage.disk import Disk
from omq.storage.payloads import PayloadReader
from omq.storage.pool import PoolFiles
from omq.storage.slots import SlotAllocator
from omq.storage.spool import create_spool
from omq.storage.volatile import VolatileBodies
from omqtools.omqtest.clients import key_of
from omqtools.omqtest.history import Found

MESSAGES = 20_000
SETTINGS = Settings(journal_file_bytes=1 << 19, block_bytes_max=1 << 18)
_CONTAINER = int(GivenFlag.CONTAINER)


def contents(spool: Path) -> list[Found]:
    """Recover and list; raises OmqError when a manager would not start."""
    durable.use(Disk())
    info = create_spool(spool)
    pool = PoolFiles(info.paths, info.uuid)
    bodies = PayloadReader(info.paths)
    volatile = VolatileBodies(info.paths, SETTINGS, info.uuid)
    try:
        recover(info.paths, SETTINGS, info.uuid, pool, lambda text: None)
        tables = Tables.private(MESSAGES, MESSAGES)
        core = Core(tables, SlotAllocator(), volatile, info.uuid)
        core.now_ns, core.mono_ns = clock.wall_ns(), clock.monotonic_ns()
        loaded = load(core, pool, SlotAllocator())
        return [_found(core, bodies, spool, entry) for entry in range(loaded_entries(core))
                ] if loaded.messages else []
    finally:
        volatile.close()
        bodies.close()
        pool.close()


def loaded_entries(core: Core) -> int:
    """Entries that a rebuild made: they stand without gaps."""
    return core.t.entries.high


def _found(core: Core, bodies: PayloadReader, spool: Path, entry: int) -> Found:
    t = core.t
    slot = t.e_message[entry]
    place = (t.e_queue[entry], -t.e_priority[entry], t.e_sequence[entry])
    idle = t.e_queue[entry] == IDEL
    fresh = not t.e_attempts[entry] and not t.e_retries[entry]
    what = f"body of {t.m_qpool[slot]}: "
    try:
        raw = bodies.read(t.m_location[slot], t.m_offset[slot], t.m_length[slot], t.m_qpool[slot])
        payload = message_format.decode(raw)
        if crc32c(raw) != t.m_crc[slot] or isinstance(payload, Finding):
            return Found(f"{what}{payload if isinstance(payload, Finding) else 'wrong CRC'}", idle,
                         bad=True, fresh=False)
        body = raw[payload.body_at :]
        if t.m_flags[slot] & _CONTAINER:
            body = containers.read_item(SpoolPaths(spool), body.decode("ascii", "replace"),
                                        t.m_size[slot], t.m_qpool[slot])
            if crc32c(body) != payload.descriptor.body_crc:
                return Found(f"{what}wrong CRC of its container", idle, bad=True, fresh=False)
    except OmqError as error:
        return Found(f"{what}{error}", idle, bad=True, fresh=False)
    key, bad = key_of(body)
    return Found(key, idle, bad, fresh, place)
