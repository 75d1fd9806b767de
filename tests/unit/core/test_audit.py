"""Which messages index and pool do not agree on: found by columns, each column counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.core.check.audit import sides, suspects
from omq.core.index.tables import Tables
from omq.core.index.view import IndexView
from omq.format.index import Counter, EntryState, IndexLayout
from omq.storage import spool
from omq.storage.spool import SpoolInfo
from tests.unit.omqdump.world import KEPT, LAYOUT, NOW_NS, add_entry, add_message, fill

NS = 1_000_000_000
Pair = tuple[Tables, Tables, IndexView, IndexView]


@pytest.fixture
def spool_info(tmp_path: Path) -> SpoolInfo:
    return spool.create_spool(tmp_path / "spool")


@pytest.fixture
def pair(spool_info: SpoolInfo) -> Iterator[Pair]:
    made, layout = [], IndexLayout.of(*LAYOUT)
    for _ in range(2):
        tables = Tables(memoryview(bytearray(layout.size)), layout)
        fill(tables)
        add_message(tables, 8, 992, 32)
        add_entry(tables, 12, 8, 1, EntryState.READY, 1500)  # on IDEL
        tables.counters[Counter.HEARTBEAT] = NOW_NS
        made.append(tables)
    index, pool = made
    with IndexView.of(index, spool_info.paths) as one, IndexView.of(pool, spool_info.paths) as two:
        yield index, pool, one, two
    for tables in made:
        tables.release()


def found(index: IndexView, pool: IndexView) -> list[int]:
    """By columns; and by the records that a divergence shows."""
    wanted = suspects(index, pool)
    every = index.copies.columns_where(("m_qpool",), lambda column: column("m_qpool") > 0)[0]
    one, two = sides(index, every), sides(pool, every)
    differ = [qpool for qpool in sorted(one.keys() | two.keys())
              if qpool not in one or qpool not in two
              or (one[qpool].size, one[qpool].queues) != (two[qpool].size, two[qpool].queues)]
    assert wanted.tolist() == differ
    return differ


def test_the_same_is_the_same(pair: Pair) -> None:
    _, _, index, pool = pair
    assert found(index, pool) == []


@pytest.mark.parametrize(("column", "row", "value", "qpool"), [
    ("m_size", 1, 513, 983), ("e_state", 5, EntryState.HELD, 983), ("e_priority", 5, 9, 983),
    ("e_sequence", 5, 7, 983), ("e_attempts", 5, 1, 983), ("e_attempts", 2, 2, 956),
    ("e_retries", 5, 1, 983), ("e_queue", 5, 3, 983), ("m_flags", 1, 0, 983),
    ("e_state", 4, 0, 956), ("e_state", 12, EntryState.DEFERRED, 992)])
def test_each_column_counts(pair: Pair, column: str, row: int,
                            value: int, qpool: int) -> None:
    tables, _, index, pool = pair
    getattr(tables, column)[row] = value
    assert found(index, pool) == [qpool]
    assert suspects(pool, index).tolist() == [qpool]


@pytest.mark.parametrize(("column", "row", "value"), [
    ("e_reader", 2, 0), ("e_lease", 2, 7), ("m_flags", 1, KEPT | 64), ("m_size", 5, 99),
    ("e_priority", 12, 9), ("e_until", 8, NOW_NS + 40 * NS)])
def test_what_is_no_difference(pair: Pair, column: str,
                               row: int, value: int) -> None:
    """Who reads it, flags, a message that is not persistent, who works on IDEL, and until when."""
    tables, _, index, pool = pair
    getattr(tables, column)[row] = value
    assert found(index, pool) == []


def test_a_deferral_that_is_over_is_ready(pair: Pair) -> None:
    tables, other, index, pool = pair
    tables.e_state[8] = EntryState.READY
    other.e_until[8] = NOW_NS
    assert found(index, pool) == []
    other.e_until[8] = NOW_NS + 2 * NS
    assert found(index, pool) == [985]


def test_a_message_that_one_does_not_have(pair: Pair) -> None:
    _, tables, index, pool = pair
    tables.m_qpool[1] = 0
    assert found(index, pool) == [983]
