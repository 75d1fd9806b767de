"""Blocks of an archive file: rows turned by bytes come back as rows and as columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from omq.base.arrays import Rows
from omq.format.archive import BLOCK_BYTES, SEAL, Section, decode_header, rows_per_block
from omq.format.archive_block import Block, columns, open_block, seal_rows
from omq.format.findings import Finding
from omq.format.journal import FRAME
from tests.unit.format.samples import UUID, archive_head

FULL = rows_per_block(Section.FRAMES)
WIDE = {name: np.dtype("<i8") for name in FRAME.names if FRAME.dtype[name].itemsize == 8}
NARROW = {name: np.dtype("<i4") for name in FRAME.names if FRAME.dtype[name].itemsize <= 2}
SAME = {name: FRAME.dtype[name] for name in FRAME.names}


def frames(count: int, seed: int = 1) -> Rows:
    """Headers of which some bytes are random, some equal, some few values."""
    random = np.random.default_rng(seed)
    rows = np.zeros(count, FRAME.dtype)
    for name in FRAME.names[::2]:
        rows[name] = random.integers(0, 1 << 8 * rows.dtype[name].itemsize - 1, count)
    rows["queue"] = random.choice([7, 8, 300], count)
    rows["priority"] = 4
    return rows


def opened(*parts: Rows, gap: int = 0) -> list[Block]:
    """Blocks with these rows in one piece of raw bytes, `gap` blocks between them."""
    head = decode_header(archive_head())
    assert not isinstance(head, Finding)
    sealed = [seal_rows(UUID, 42, i, Section.FRAMES, rows) for i, rows in enumerate(parts)]
    data = bytes(gap * BLOCK_BYTES).join(sealed)
    found = []
    for i in range(len(parts)):
        block = open_block(data, i * (1 + gap) * BLOCK_BYTES, head, i, Section.FRAMES)
        assert isinstance(block, Block), block
        found.append(block)
    return found


@pytest.mark.parametrize("count", [1, 2, 510, FULL])
def test_rows_come_back(count: int) -> None:
    rows = frames(count)
    (block,) = opened(rows)
    assert len(block) == count
    assert block.rows().tobytes() == rows.tobytes()


@pytest.mark.parametrize("gap", [0, 1])
@pytest.mark.parametrize("kinds", [WIDE, NARROW, SAME], ids=["wide", "narrow", "same"])
@pytest.mark.parametrize("counts", [(FULL,), (FULL,) * 3, (FULL, FULL, 3), (5, 5), (9, FULL)])
def test_columns_are_the_fields_of_all_rows(counts: tuple[int, ...], kinds: dict[str, np.dtype],
                                            gap: int) -> None:
    parts = [frames(count, seed) for seed, count in enumerate(counts)]
    found = columns(opened(*parts, gap=gap), kinds)
    assert list(found) == list(kinds)
    for name, kind in kinds.items():
        wanted = np.concatenate([rows[name] for rows in parts])
        assert found[name].dtype == kind
        assert np.array_equal(found[name], wanted.astype(kind)), name


def test_a_plane_that_varies_in_one_block_only() -> None:
    first, second = np.zeros(FULL, FRAME.dtype), np.zeros(FULL, FRAME.dtype)
    first["qpool"], second["qpool"] = 0x0102, np.arange(FULL)
    found = columns(opened(first, second), {"qpool": np.dtype("<i8")})["qpool"]
    assert found.tolist() == [0x0102] * FULL + list(range(FULL))


def test_no_blocks_no_rows() -> None:
    assert {len(values) for values in columns([], WIDE).values()} == {0}


def test_the_seal_says_what_varies() -> None:
    rows = np.zeros(10, FRAME.dtype)
    rows["lsn"] = np.arange(10)
    (block,) = opened(rows)
    assert block.varying == 1 << FRAME.offset("lsn")
    head = decode_header(archive_head())
    assert not isinstance(head, Finding)
    forged = bytearray(block.data)
    forged[SEAL.offset("varying")] ^= 1
    assert isinstance(open_block(bytes(forged), 0, head, 0, Section.FRAMES), Finding)
    other = replace(head, uuid=bytes(16))
    assert isinstance(open_block(block.data, 0, other, 0, Section.FRAMES), Finding)
