"""The index without numpy: the same rows as core.index.view gives, and nothing can upset it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from omq.base.errors import ManagerUnavailable, UnknownQueue
from omq.base.paths import SpoolPaths
from omq.core.index import without_numpy
from omq.core.index.tables import Tables
from omq.core.index.view import IndexView
from omq.core.index.without_numpy import PlainIndex
from omq.format.index import TABLES_AT, Counter, EntryState, QueueFlag
from omq.storage.spool import SpoolInfo
from tests.unit.core.test_index_view import LOCAL_ORDER, attachments
from tests.unit.omqdump import world


@pytest.fixture
def tables() -> Tables:
    made = Tables.private(*world.LAYOUT)
    world.fill(made)
    return made


Both = Callable[[Tables], tuple[PlainIndex, IndexView]]


@pytest.fixture
def both(info: SpoolInfo) -> Iterator[Both]:
    """The two looks at the same tables; closed at the end."""
    with ExitStack() as stack:
        def made(tables: Tables) -> tuple[PlainIndex, IndexView]:
            mine = PlainIndex(tables.buffer, tables.layout, info.paths)
            return (stack.enter_context(closing(mine)),
                    stack.enter_context(IndexView.of(tables, info.paths)))

        yield made


def test_the_same_rows_in_the_same_order(tables: Tables, both: Both) -> None:
    mine, view = both(tables)
    names = mine.queue_names()
    assert names == view.queue_names()
    for queue in (row.name for row in view.queues()):
        raws = list(mine.raw_entries(queue))
        assert raws == list(view.raw_entries(queue))
        assert [mine.entry_of(raw, names) for raw in raws] == list(view.entries(queue))
        assert list(mine.raw_entries(queue, 2)) == raws[:2]
    numbers = [9, 2, 7, 3, 10**6]
    assert list(mine.raw_numbered(numbers)) == list(view.raw_numbered(numbers))


def test_many_of_all_priorities(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(without_numpy, "_PIECE_ROWS", 700)
    chance = random.Random(3)
    tables = Tables.private(3000, 3500)
    world.add_queue(tables, 3, "ROUTER")
    for number in range(3000):
        world.add_message(tables, number, number + 1, number)
        world.add_entry(tables, number, number, 3, EntryState.READY, 1, chance.randrange(10))
        tables.e_sequence[number] = chance.randrange(1 << 40)
    mine, view = both(tables)
    assert list(mine.raw_entries("ROUTER")) == list(view.raw_entries("ROUTER"))


def test_queues_that_are_not_there_or_give_nothing(tables: Tables, both: Both) -> None:
    mine, _ = both(tables)
    with pytest.raises(UnknownQueue):
        mine.raw_entries("NOWHERE")
    assert mine.hands_out("LOCAL")
    tables.q_flags[4] |= QueueFlag.SUSPENDED
    assert not mine.hands_out("LOCAL")
    tables.q_flags[4] = 0  # removed; another one with its name came
    with pytest.raises(UnknownQueue):
        mine.raw_entries("LOCAL")
    world.add_queue(tables, 7, "LOCAL")
    world.add_entry(tables, 12, 3, 7, EntryState.READY, 2000)
    assert [raw[0] for raw in mine.raw_entries("LOCAL")] == [12]


def test_free_slots_and_wrong_numbers_are_left_out(tables: Tables, both: Both) -> None:
    mine, _ = both(tables)
    tables.m_qpool[1] = 0
    tables.e_message[7] = 0xFFFFFFFF
    tables.e_state[8] = 77
    tables.e_state[9] = 0
    assert [raw[3][0] for raw in mine.raw_entries("LOCAL")] == [991, 956]


def test_an_entry_that_is_used_again_meanwhile_is_left_out(
        tables: Tables, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(without_numpy, "_PIECE_ROWS", 1)
    mine, _ = both(tables)
    rows = mine.raw_entries("LOCAL")
    assert next(rows)[3][0] == 984
    world.set_row(tables, 11, e_sequence=5000, e_message=6)  # 991 was done, 990 came
    world.set_row(tables, 5, e_state=EntryState.FREE)
    assert [raw[3][0] for raw in rows] == [986, 985, 956]


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_in_the_tables(both: Both, seed: int) -> None:
    """The same rows; their order may be another where priorities are none."""
    tables = Tables.private(200, 300, 8, 8)
    tables.buffer[TABLES_AT:] = random.Random(seed).randbytes(len(tables.buffer) - TABLES_AT)
    for counter in (Counter.MESSAGES_HIGH, Counter.ENTRIES_HIGH, Counter.QUEUES_HIGH):
        tables.counters[counter] = (1 << 64) - 1
    for queue in range(8):
        tables.q_flags[queue] |= QueueFlag.IN_USE
    tables.v["e_queue"][:] %= 8
    tables.v["e_state"][:] %= 7
    tables.v["e_message"][::2] %= 200
    mine, view = both(tables)
    found = [raw for name in mine.queue_names() for raw in mine.raw_entries(name)]
    assert found, "the test is about rows"
    assert sorted(found) == sorted(view.raw_entries())
    assert all(mine.entry_of(raw, mine.queue_names()).message.item_ref for raw in found)


def test_attached_and_closed_in_the_middle(info: SpoolInfo) -> None:
    with world.indexed(info) as tables:
        world.fill(tables)
        before = attachments(info)
        mine = PlainIndex.attach(info.paths)
        assert mine.header is not None
        rows = mine.raw_entries("LOCAL")
        assert next(rows)[3][0] == LOCAL_ORDER[0]
        mine.close()
        mine.close()  # the rest of the rows is not asked for
        assert attachments(info) == before


def test_nothing_to_attach(info: SpoolInfo, tmp_path: Path) -> None:
    for paths in (info.paths, SpoolPaths(tmp_path / "nowhere")):
        with pytest.raises(ManagerUnavailable):
            PlainIndex.attach(paths)
