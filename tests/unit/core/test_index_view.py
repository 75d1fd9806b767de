"""The read-only look at the index: what it says, and that nothing in the tables can upset it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sysv_ipc

from omq.base.errors import ManagerUnavailable, UnknownQueue
from omq.base.paths import SpoolPaths
from omq.cli.look.index_records import entry_record
from omq.core.index import view as index_view
from omq.core.index.item_refs import ItemRefs, place
from omq.core.index.tables import Tables
from omq.core.index.view import IndexView
from omq.format.index import TABLES_AT, Counter, EntryState
from omq.format.location import LocationKind, location
from omq.storage import segment
from omq.storage.segment import read_ids
from omq.storage.spool import SpoolInfo
from omqtools.omqdump import render
from tests.demo.live import take_look
from tests.unit.omqdump import world
from tests.unit.omqdump.world import NOW_NS, add_entry, add_message, add_queue, change_ids, set_row

LOCAL_ORDER = [984, 991, 983, 986, 985, 956]


@pytest.fixture
def tables() -> Tables:
    return Tables.private(*world.LAYOUT)


@pytest.fixture
def view(tables: Tables, info: SpoolInfo) -> Iterator[IndexView]:
    world.fill(tables)
    with IndexView.of(tables, info.paths) as made:
        yield made


def attachments(info: SpoolInfo) -> int:
    ids = read_ids(info.paths)
    assert ids is not None
    memory = sysv_ipc.attach(ids.segment, None, sysv_ipc.SHM_RDONLY)
    try:
        return int(memory.number_attached) - 1
    finally:
        memory.detach()


def test_queues_by_name_and_the_special_ones_last(view: IndexView) -> None:
    rows = view.queues()
    assert [row.name for row in rows] == ["DESK", "LOCAL", "ROUTER", "UNIX", "IDEL", "POISON"]
    assert [row.special for row in rows] == [False] * 4 + [True] * 2
    local = rows[1]
    assert (local.number, local.messages, local.active, local.ready, local.deferred) == (4, 6, 2, 3,
                                                                                        1)
    assert (local.ever, local.processed, local.hour, local.last_hour) == (6, 874, 25, 121)
    assert local.load == (96.679782, 19.7, 12.74)
    assert local.throughput == (28.22, 31.18, 31.72)
    assert rows[0].held == 1


def test_entries_in_the_order_of_hand_out(view: IndexView) -> None:
    rows = list(view.entries("LOCAL"))
    assert [row.message.qpool for row in rows] == LOCAL_ORDER
    assert [row.priority for row in rows] == [7, 4, 4, 4, 4, 4]
    assert [row.attempts for row in rows] == [0, 1, 0, 0, 2, 0], "one under way is not a failed one"
    assert rows[4].state is EntryState.DEFERRED and rows[4].until_ns > NOW_NS
    assert not rows[3].message.persistent
    assert (rows[3].message.file, rows[3].message.record) == (None, None)


def test_limit_and_all_queues(view: IndexView) -> None:
    assert [row.message.qpool for row in view.entries("LOCAL", 2)] == LOCAL_ORDER[:2]
    assert list(view.entries("ROUTER")) == []
    everything = [(row.queue, row.message.qpool) for row in view.entries()]
    assert everything == [("DESK", 956), *(("LOCAL", qpool) for qpool in LOCAL_ORDER),
                          ("UNIX", 956), ("POISON", 990)]
    with pytest.raises(UnknownQueue):
        view.entries("NOWHERE")


def test_order_of_many(tables: Tables, info: SpoolInfo) -> None:
    chance = random.Random(1)
    tables = Tables.private(9000, 10000)
    add_queue(tables, 3, "ROUTER")
    wanted = []
    for number in range(9000):
        priority, sequence = chance.randrange(10), chance.randrange(1 << 40)
        add_message(tables, number, number + 1, number)
        add_entry(tables, number, number, 3, EntryState.READY, 1, priority)
        tables.e_sequence[number] = sequence
        wanted.append((-priority, sequence, number + 1))
    rows = IndexView.of(tables, info.paths).entries("ROUTER")
    assert [row.message.qpool for row in rows] == [qpool for _, _, qpool in sorted(wanted)]


def test_active(view: IndexView) -> None:
    rows = list(view.active())
    assert [(row.number, row.message.qpool, row.reader, row.lease) for row in rows] == [
        (2, 956, 3, 1500), (11, 991, 3, 1499)]


def test_readers(view: IndexView) -> None:
    rows = view.readers()
    assert [(row.number, row.name, row.queue, row.auxiliary) for row in rows] == [
        (0, "idel", "IDEL", False), (1, "router", "ROUTER", False), (3, "local", "LOCAL", False),
        (4, "local", "LOCAL", True)]
    assert [(row.active, row.current) for row in rows] == [(0, None), (0, None), (2, 11), (0, None)]


def test_messages_and_counters(view: IndexView) -> None:
    rows = list(view.messages())
    assert [(row.number, row.qpool) for row in rows] == [
        (0, 956), (1, 983), (3, 984), (4, 985), (5, 986), (6, 990), (7, 991)]
    assert rows[0].parts == 3
    assert view.counters()["next_qpool"] == 1056
    assert len(view.counters()) == len(Counter)
    assert (view.message_slots, view.reader_slots, view.header, view.alive) == (16, 8, None, True)


def test_item_references(view: IndexView, info: SpoolInfo) -> None:
    shown = {row.qpool: row.item_ref for row in view.messages()}
    assert shown[956] == world.REF
    assert shown[983] == "~/journal/0000000007.jnl:4224"
    assert shown[986] == "~/volatile/0000000003.vol:4224"
    assert place(location(LocationKind.STORE, 9), 5) == "~/store/0000000009.sto:5"
    assert place(0xC0000001, 5) == "~/unknown/0xc0000001:5"


@pytest.mark.parametrize("payload", [
    b"", b"\xff" * 300, world.container_payload().replace(b"~/data/", b"~/../..")])
def test_a_reference_that_cannot_be_believed_is_not_shown(info: SpoolInfo, payload: bytes) -> None:
    world.put_payload(info.paths, payload)
    refs = ItemRefs(info.paths)
    length = len(world.container_payload())
    assert refs.of(world.STORE, 16, length, 3) == "~/store/0000000001.sto:16"
    assert refs.of(world.STORE, 16, 1 << 31, 3) == "~/store/0000000001.sto:16"
    refs.close()


def test_free_slots_and_wrong_numbers_are_left_out(tables: Tables, view: IndexView) -> None:
    tables.m_qpool[1] = 0
    tables.e_message[7] = 0xFFFFFFFF
    tables.e_state[8] = 77
    tables.e_state[9] = 0
    assert [row.message.qpool for row in view.entries("LOCAL")] == [991, 956]
    assert [row.qpool for row in view.messages()] == [956, 984, 985, 986, 990, 991]


def test_an_entry_that_is_used_again_meanwhile_is_left_out(
        tables: Tables, view: IndexView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_view, "CHUNK_ROWS", 1)
    rows = view.entries("LOCAL")
    assert next(rows).message.qpool == 984
    set_row(tables, 11, e_sequence=5000, e_message=6)  # 991 was done, 990 came
    set_row(tables, 5, e_state=EntryState.FREE)
    assert [row.message.qpool for row in rows] == [986, 985, 956]


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_in_the_tables(info: SpoolInfo, seed: int) -> None:
    chance = np.random.default_rng(seed)
    tables = Tables.private(200, 300, 8, 8)
    size = len(tables.buffer) - TABLES_AT
    tables.buffer[TABLES_AT:] = chance.bytes(size)
    for counter in (Counter.MESSAGES_HIGH, Counter.ENTRIES_HIGH, Counter.QUEUES_HIGH,
                    Counter.READERS_HIGH):
        tables.counters[counter] = (1 << 64) - 1
    for queue in range(8):  # some are in use, entries are on them
        tables.q_flags[queue] |= 1
        tables.r_flags[queue] |= 0x201
    tables.v["e_queue"][:] %= 8
    tables.v["e_state"][:] %= 7
    tables.v["e_message"][::2] %= 200
    view = IndexView.of(tables, info.paths)
    rows = list(view.entries())
    assert rows, "the test is about rows"
    view.readers()
    assert all(line.isascii() and line.isprintable() for line in (
        *render.load_table(view.queues()), *render.throughput_table(view.queues()),
        *render.entry_table(rows)))
    assert all(entry_record(row) for row in (*rows, *view.active()))
    assert all(row.item_ref for row in view.messages())


def test_attach_to_a_living_manager(info: SpoolInfo, running: Tables) -> None:
    before = attachments(info)
    with IndexView.attach(info.paths) as view:
        assert view.alive
        assert view.header is not None and view.header.epoch == 3
        assert [row.message.qpool for row in view.entries("LOCAL")] == LOCAL_ORDER
        running.m_qpool[1] = 0
        assert [row.message.qpool for row in view.entries("LOCAL", 3)] == [984, 991, 986]
    assert attachments(info) == before


def test_a_listing_that_was_not_finished_does_not_keep_the_segment(
        info: SpoolInfo, running: Tables) -> None:
    before = attachments(info)
    view = IndexView.attach(info.paths)
    listings = (view.entries("LOCAL"), view.messages(), view.active())
    assert all(next(each) for each in listings)
    view.close()
    view.close()
    assert attachments(info) == before


def test_what_a_dead_manager_left(info: SpoolInfo) -> None:
    with world.indexed(info, alive=False) as tables:
        world.fill(tables)
        with IndexView.attach(info.paths) as view:
            assert not view.alive
            assert len(view.queues()) == 6


def test_the_demo_can_look(info: SpoolInfo, running: Tables) -> None:
    view = IndexView.attach(info.paths)
    look = take_look(lambda: view)
    view.close()
    assert look is not None
    assert look.readers == 4
    assert look.rows[1] == ("LOCAL", 6, 2, 6)


@pytest.mark.parametrize("values", [
    {"segment": "x"}, {"segment": 1 << 70}, {"segment": None}, {"segment": -1}, {"epoch": 9},
    {"uuid": "00"}, {"boot": "00"}, {"boot": 5}])
def test_ids_that_do_not_fit(info: SpoolInfo, running: Tables, values: dict[str, object]) -> None:
    good = info.paths.ids.read_bytes()
    before = attachments(info)
    change_ids(info.paths, **values)
    with pytest.raises(ManagerUnavailable):
        IndexView.attach(info.paths)
    info.paths.ids.write_bytes(good)
    assert attachments(info) == before


def test_nothing_to_attach(info: SpoolInfo, tmp_path: Path) -> None:
    with pytest.raises(ManagerUnavailable, match="is missing"):
        IndexView.attach(info.paths)
    with pytest.raises(ManagerUnavailable):
        IndexView.attach(SpoolPaths(tmp_path / "nowhere"))
    for text in ("", "[]", "{", '"x"', "\0", "7"):
        info.paths.ids.write_text(text)
        with pytest.raises(ManagerUnavailable):
            IndexView.attach(info.paths)
    info.paths.ids.unlink()
    info.paths.ids.mkdir()
    with pytest.raises(ManagerUnavailable):
        IndexView.attach(info.paths)


def test_a_segment_that_is_gone(info: SpoolInfo) -> None:
    with world.indexed(info):
        pass
    with pytest.raises(ManagerUnavailable, match="no index segment"):
        IndexView.attach(info.paths)


def test_a_segment_that_is_none_of_ours(info: SpoolInfo, running: Tables) -> None:
    foreign = segment.create(8192)
    change_ids(info.paths, segment=foreign.id)
    try:
        with pytest.raises(ManagerUnavailable, match="is not its index"):
            IndexView.attach(info.paths)
        assert foreign.number_attached == 1
    finally:
        foreign.remove()
        foreign.detach()
