"""A message that a request wants to put, as the engine gets it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class NewMessage:
    """What a put request says; `payload` still lies in the client's channel."""

    queue: int
    priority: int
    flags: int  # wire.PutFlag
    size: int
    crc: int
    correlation: int
    key: int  # hash of a given message id, 0 = derived
    expiry: int
    parts: int
    payload: bytes | memoryview
    members: str = ""  # of a barrier, once they are judged (core.engine.barriers)
    skips: int = 0  # QPoolIds that stay unused before its own: of duplicates
