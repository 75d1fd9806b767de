"""What a submitter says of a message, as it travels."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.paths import SpoolPaths
from omq.format.message import Part, decode, parts_in
from omq.ipc.wire.arguments import SECONDS_MAX
from omq.ipc.wire.outgoing import Outgoing, encode_outgoing


def only_part(tmp_path: Path, delay_s: float) -> Part:
    encoded = encode_outgoing(Outgoing(b"x", delay_s=delay_s), (3,), 0, SpoolPaths(tmp_path),
                              1 << 18, "test")
    assert not isinstance(decode(encoded.payload), str)
    (part,) = parts_in(encoded.payload, encoded.parts)
    return part


@pytest.mark.parametrize("delay_s", [3e9, SECONDS_MAX])
def test_the_longest_delay_ends_where_records_end(tmp_path: Path, delay_s: float) -> None:
    """In the year 2106; anything longer is refused as an argument."""
    assert only_part(tmp_path, delay_s) == Part(3, 4, 0, 0xFFFFFFFF)
