"""Each kind of damage that costs no message: found, named, planned, repaired; then a start has all
messages again, and the originals are in quarantine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omq.format.pool import RECORD_BYTES, encode_file_header
from omq.format.poolctrl import SLOT_BYTES
from omq.storage.store import file_name as store_name
from tests.recovery.conftest import Dead
from tests.recovery.spool import (
    change,
    control_of,
    damaged,
    file_name,
    overwrite,
    repair,
    run,
    scan,
    start,
)
from tests.unit.core.redo_world import Known
from tests.unit.format.samples import double_write_part

CLEAN, REPAIRABLE, LOSS = 0, 1, 65
OTHER = bytes(range(16))


def pool_file(dead: Dead, number: int) -> Path:
    return dead.paths.msgpool / f"{number}QP"


def record(dead: Dead, number: int, index: int) -> bytes:
    data = pool_file(dead, number).read_bytes()
    return data[(index + 1) * RECORD_BYTES : (index + 2) * RECORD_BYTES]


def put_record(dead: Dead, number: int, index: int, data: bytes) -> None:
    overwrite(pool_file(dead, number), (index + 1) * RECORD_BYTES, data)


def used(dead: Dead, number: int) -> list[int]:
    """Slots of a pool file that hold something."""
    data = pool_file(dead, number).read_bytes()[RECORD_BYTES:]
    slots = [data[at : at + RECORD_BYTES] for at in range(0, len(data), RECORD_BYTES)]
    return [index for index, slot in enumerate(slots) if any(slot)]


def _torn_record(dead: Dead) -> None:
    slot = used(dead, 1)[4]
    put_record(dead, 1, slot, record(dead, 1, slot)[:100] + os.urandom(100))


def _flipped_bit(dead: Dead) -> None:
    slot = used(dead, 0)[-1]  # of a message on many queues
    data = bytearray(record(dead, 0, slot))
    data[40] ^= 4
    put_record(dead, 0, slot, bytes(data))


def _lost_records(dead: Dead) -> None:
    for slot in used(dead, 2)[3:6]:
        put_record(dead, 2, slot, bytes(RECORD_BYTES))


def _short_file(dead: Dead) -> None:
    size = pool_file(dead, 1).stat().st_size
    change(pool_file(dead, 1), lambda file: file.truncate(size - 10 * RECORD_BYTES))


def _cut_file(dead: Dead) -> None:
    with pool_file(dead, 2).open("ab") as file:
        file.write(b"half of a record")


def _missing_file(dead: Dead) -> None:
    pool_file(dead, 1).unlink()


def _renamed_file(dead: Dead) -> None:
    pool_file(dead, 1).rename(pool_file(dead, 42))


def _copied_file(dead: Dead) -> None:
    shutil.copy(pool_file(dead, 0), pool_file(dead, 2))


def _extra_file(dead: Dead) -> None:
    pool_file(dead, 7).write_bytes(encode_file_header(7, OTHER, 0) + os.urandom(RECORD_BYTES))


def _link(dead: Dead) -> None:
    pool_file(dead, 9).symlink_to("/etc/passwd")


def _directory(dead: Dead) -> None:
    pool_file(dead, 9).mkdir()


def _fifo(dead: Dead) -> None:
    os.mkfifo(pool_file(dead, 9))


def _file_header(dead: Dead) -> None:
    overwrite(pool_file(dead, 0), 20, b"damage")


def _duplicate(dead: Dead) -> None:
    """An older copy of a record, in the slot behind the last one."""
    slot, last = used(dead, 1)[0], used(dead, 1)[-1] + 1
    from omq.format.pool import Record, decode_record, encode_message

    made = decode_record(record(dead, 1, slot), 0, 1, slot)
    assert isinstance(made, Record)
    made.message.record, made.message.lsn = last, made.message.lsn - 1
    put_record(dead, 1, last, encode_message(made.message)[0][1])


def _renumbered_record(dead: Dead) -> None:
    """The record of one slot copied over another one."""
    first, second = used(dead, 1)[2:4]
    put_record(dead, 1, second, record(dead, 1, first))


def _old_record(dead: Dead) -> None:
    """A checkpoint that forgot a file: the record is whole, and of yesterday."""
    from omq.format.pool import PartState, Record, decode_record, encode_message

    for slot in used(dead, 1):
        made = decode_record(record(dead, 1, slot), 0, 1, slot)
        if isinstance(made, Record) and any(
                part.state is PartState.ACTIVE for part in made.message.parts):
            made.message.parts[0].state = PartState.READY
            made.message.parts[0].attempts, made.message.parts[0].until = 0, 0
            made.message.lsn = made.message.parts[0].sequence
            put_record(dead, 1, slot, encode_message(made.message)[0][1])
            return
    raise AssertionError("no message was handed out")


def _stray(dead: Dead) -> None:
    from omq.format.pool import RecordKind

    data = next(record(dead, 0, s) for s in used(dead, 0)
                if record(dead, 0, s)[9] == RecordKind.MORE)
    slot = used(dead, 0)[-1] + 3
    from omq.format.pool import Record, decode_record, encode_message

    made = decode_record(data, 0, 0, int.from_bytes(data[20:24], "little"))
    assert isinstance(made, Record)
    message = made.message
    message.record, message.more = slot - 1, [slot]
    message.parts = (message.parts * 17)[:17]
    put_record(dead, 0, slot, encode_message(message)[1][1])


def _one_slot(dead: Dead) -> None:
    newest = control_of(dead.paths).generation % 2
    overwrite(dead.paths.msgpool / "poolctrl", newest * SLOT_BYTES + 50, b"damage")


def _both_slots(dead: Dead) -> None:
    for slot in (0, 1):
        overwrite(dead.paths.msgpool / "poolctrl", slot * SLOT_BYTES + 50, b"damage")


def _foreign_double_write(dead: Dead) -> None:
    image = record(dead, 0, used(dead, 0)[0])
    (dead.paths.msgpool / "checkpoint.dw").write_bytes(
        double_write_part([(0, 0, image)], OTHER, 1))


def _foreign_journal(dead: Dead) -> None:
    from omq.format.journal import FileHeader

    number = 6
    header = FileHeader(OTHER, 1, number, 4096, 8192, 1, 0, 0, 0, 1)
    (dead.paths.journal / file_name(number)).write_bytes(header.encode())


def _renamed_journal(dead: Dead) -> None:
    (dead.paths.journal / file_name(5)).rename(dead.paths.journal / file_name(8))


def _journal_header(dead: Dead) -> None:
    overwrite(dead.paths.journal / file_name(4), 60, b"damage")


def _old_block(dead: Dead) -> None:
    """A block whose frames the pool has: its history is damaged, no message."""
    overwrite(dead.paths.archive / file_name(2), 4096 + 40, b"damage")


def _older_pool(dead: Dead) -> None:
    """The checkpoint's journal file, and all behind it, lie in archive/."""
    for number in (4, 5):
        (dead.paths.journal / file_name(number)).rename(dead.paths.archive / file_name(number))


def _relocated_body(dead: Dead) -> None:
    overwrite(dead.paths.store / store_name(1), 4096 + 32 + 1000, b"damage")


def _missing_store(dead: Dead) -> None:
    (dead.paths.store / store_name(1)).unlink()


def _foreign_store(dead: Dead) -> None:
    (dead.paths.store / store_name(2)).write_bytes(b"no store file" * 100)


def _orphan(dead: Dead) -> None:
    (dead.paths.data / "0000005").mkdir()
    (dead.paths.data / "0000005" / "000084u").write_bytes(b"nobody's")


DAMAGES: dict[str, tuple[Callable[[Dead], None], set[str]]] = {
    "torn record": (_torn_record, {"record_damaged"}),
    "flipped bit": (_flipped_bit, {"record_damaged"}),
    "lost records": (_lost_records, {"record_missing"}),
    "short pool file": (_short_file, {"record_missing"}),
    "half a record": (_cut_file, {"pool_file_cut"}),
    "missing pool file": (_missing_file, {"pool_file_missing"}),
    "renamed pool file": (_renamed_file, {"pool_file_renamed"}),
    "pool file over another": (_copied_file, {"pool_file_renamed", "record_missing"}),
    "foreign pool file": (_extra_file, {"pool_file_foreign"}),
    "link": (_link, {"pool_file_foreign"}),
    "directory": (_directory, {"pool_file_foreign"}),
    "fifo": (_fifo, {"pool_file_foreign"}),
    "header of a pool file": (_file_header, {"pool_file_header"}),
    "two records of one message": (_duplicate, {"record_duplicate"}),
    "renumbered record": (_renumbered_record, {"record_damaged"}),
    "old record": (_old_record, {"record_old"}),
    "stray continuation": (_stray, {"record_stray"}),
    "one slot of poolctrl": (_one_slot, {"control_cut"}),
    "both slots of poolctrl": (_both_slots, {"control_lost"}),
    "foreign double-write file": (_foreign_double_write, {"double_write_foreign"}),
    "foreign journal file": (_foreign_journal, {"journal_foreign"}),
    "renamed journal file": (_renamed_journal, {"journal_renamed"}),
    "header of a journal file": (_journal_header, {"journal_header"}),
    "block below the checkpoint": (_old_block, {"journal_block"}),
    "pool of an older backup": (_older_pool, {"journal_archived"}),
    "damaged body in the store": (_relocated_body, {"body_damaged"}),
    "missing store file": (_missing_store, {"body_damaged"}),
    "foreign store file": (_foreign_store, {"store_foreign"}),
    "orphan container": (_orphan, {"container_orphan"}),
}
LEFT_DAMAGED = {"one slot of poolctrl", "both slots of poolctrl", "header of a journal file",
                "block below the checkpoint"}
"""The next checkpoint writes poolctrl; what is damaged in a journal file stays what it is."""

LIKE_A_CUT = {"one slot of poolctrl"}
"""What a cut checkpoint may leave: to the start, omqcheck and omqrecover alike it is no damage."""

BODIES_MOVED = {"damaged body in the store", "missing store file"}


def without_places(known: Known, *, moved: bool) -> Known:
    """What is known of messages; without where their bodies lie, when that has changed."""
    if not moved:
        return known
    return {qpool: (where[:2] + where[4:], parts) for qpool, (where, parts) in known.items()}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_repaired(dead: Dead, name: str) -> None:
    damage, expected = DAMAGES[name]
    damage(dead)
    code, findings = scan(dead.root)
    assert {each["finding"] for each in findings} == expected
    assert code == (CLEAN if name in LIKE_A_CUT else REPAIRABLE), findings
    repair(dead.root)
    if name not in LEFT_DAMAGED:
        assert scan(dead.root) == (CLEAN, [])
    recovered, messages = start(dead.root, dead.uuid)
    moved = name in BODIES_MOVED
    assert without_places(messages, moved=moved) == without_places(dead.known, moved=moved)
    if name not in LEFT_DAMAGED:
        assert damaged(recovered) == []


@pytest.mark.parametrize("name", list(DAMAGES)[::4])
def test_a_scan_changes_nothing(dead: Dead, name: str) -> None:
    DAMAGES[name][0](dead)
    before = contents(dead.root)
    scan(dead.root)
    run("plan", dead.root)
    assert contents(dead.root) == before


def contents(root: Path) -> dict[str, bytes]:
    """Every regular file of a spool."""
    return {path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()}


@pytest.mark.parametrize("name", ["torn record", "missing pool file", "pool file over another",
                                  "header of a pool file", "half a record", "orphan container"])
def test_what_is_changed_is_kept(dead: Dead, name: str) -> None:
    """Every byte that the repair changes or moves is in quarantine as it was."""
    DAMAGES[name][0](dead)
    before = contents(dead.root)
    repair(dead.root)
    after = contents(dead.root)
    kept = [data for path, data in after.items() if path.startswith("quarantine/repair-")]
    changed = [path for path, data in before.items() if after.get(path) != data
               and not path.endswith(("lock", "checkpoint.dw"))]
    assert all(before[path] in kept for path in changed)
    assert changed or name == "missing pool file"


def test_a_clean_spool_is_clean(dead: Dead) -> None:
    assert scan(dead.root) == (CLEAN, [])
    code, out, _ = run("scan", dead.root)
    assert code == CLEAN
    assert "clean: start the instance" in out
    assert f"alive at the next start        {len(dead.known)}" in out


def test_a_torn_tail_is_normal(dead: Dead) -> None:
    path = dead.paths.journal / file_name(5)
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    overwrite(path, -(-end // 4096) * 4096, b"OMQB" + os.urandom(2000))
    code, findings = scan(dead.root)
    assert code == CLEAN and [each["finding"] for each in findings] == ["torn_tail"]
    assert start(dead.root, dead.uuid)[1] == dead.known


def test_a_cut_checkpoint_is_finished_by_the_start(dead: Dead) -> None:
    """Damaged records whose images lie in the double-write file are no damage."""
    slot = used(dead, 1)[4]
    image, control = record(dead, 1, slot), control_of(dead.paths)
    (dead.paths.msgpool / "checkpoint.dw").write_bytes(
        double_write_part([(1, slot, image)], dead.uuid, 9, control.generation + 1,
                          control.contents))
    put_record(dead, 1, slot, os.urandom(RECORD_BYTES))
    code, findings = scan(dead.root)
    assert code == CLEAN and [each["finding"] for each in findings] == ["double_write_cut"]
    assert start(dead.root, dead.uuid)[1] == dead.known


def test_many_damages_at_once(dead: Dead) -> None:
    for damage in (_torn_record, _lost_records, _file_header, _orphan, _link, _one_slot):
        damage(dead)
    assert scan(dead.root)[0] == REPAIRABLE
    repair(dead.root)
    assert start(dead.root, dead.uuid)[1] == dead.known
