"""Why messages are on POISON, as the journal tells it."""

from __future__ import annotations

import json
from typing import Any

from omq.format.journal import FrameType
from omq.storage.journal_reader import scan_journal
from omq.storage.spool import open_spool
from tests.process.instance import Instance


def evidence(instance: Instance) -> list[dict[str, Any]]:
    """The payloads of all POISON frames in the journal."""
    found = []
    for block in scan_journal(instance.paths, open_spool(instance.root).uuid):
        for frame in block.frames[block.frames["type"] == FrameType.POISON]:
            at = block.payload_at + int(frame["offset"])
            path = instance.paths.journal / f"{block.number:010d}.jnl"
            found.append(json.loads(path.read_bytes()[at : at + int(frame["length"])]))
    return found
