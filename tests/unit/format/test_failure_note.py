"""The note of a failure in a pool record: it comes back as it was, or not at all, and neither an
older record nor an older reader is misled by it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from omq.base.checksum import crc32c
from omq.format import pool
from omq.format.failure_note import (
    NOTE,
    NOTE_BYTES_MAX,
    TEXT_BYTES_MAX,
    FailureNote,
    cut,
    decode_note,
    note_in,
    note_of,
)
from omq.format.frame_rules import Reason
from omq.format.pool import PART, RECORD, RECORD_BYTES, Message, Record
from omq.storage.pool_scan import DTYPE
from tests.unit.format import samples

NAMED = FailureNote(2, "ORDERS", Reason.FAILED, 3, 1_000, 2_000, "the price is missing")
TEXTS = ["", "plain", "größe €", "\U0001f4a5" * 100, "x" * 100_000, "é" * 100_000, "a\0b", "\ud800"]


def message(note: FailureNote | None, parts: int = 1) -> Message:
    return replace(samples.pool_message(parts), note=note)


def written(note: FailureNote | None, parts: int = 1) -> bytes:
    return pool.encode_message(message(note, parts))[0][1]


def read(image: bytes) -> Message:
    found = pool.decode_record(image, 0, 11, 5)
    assert isinstance(found, Record)
    return found.message


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_comes_back_as_far_as_there_is_room(text: str) -> None:
    image = written(replace(NAMED, text=text))
    note = read(image).note
    assert len(image) == RECORD_BYTES
    assert note == replace(NAMED, text=cut(text, TEXT_BYTES_MAX))
    assert len(note.text.encode()) <= TEXT_BYTES_MAX
    assert note.text == text.encode(errors="replace").decode()[: len(note.text)]
    assert len(text) < 100 or len(note.text.encode()) > TEXT_BYTES_MAX - 4


@pytest.mark.parametrize("parts", range(1, 18))
def test_a_message_on_many_queues_has_a_shorter_note_or_none(parts: int) -> None:
    note = read(written(replace(NAMED, text="x" * 300), parts)).note
    room = min(NOTE_BYTES_MAX, RECORD_BYTES - RECORD.size - PART.size * min(parts, 16))
    assert (None if note is None else len(note.text)) == (
        room - NOTE.size if room >= NOTE.size else None)
    assert len(read(written(NAMED, parts)).parts) == min(parts, 16)


def test_a_record_without_a_note_is_what_it_was_before_there_were_notes() -> None:
    image = written(None)
    assert read(image).note is None
    at, used = RECORD.offset("note"), RECORD.size + PART.size
    assert image[at] == 0 and not any(image[used:])


def test_a_reader_that_knows_no_notes_reads_the_same_message() -> None:
    """Nothing that it looks at says more than the field that it passes over: `used` and the CRC
    end before the note. What it writes, with 0 or the old length in that field, has none."""
    image, used = written(NAMED), RECORD.size + PART.size
    assert pool.check_record(image, 0, 11, 5) == used
    assert int.from_bytes(image[4:8], "little") == crc32c(image[8:used])
    kept = bytearray(image[:used].ljust(RECORD_BYTES, b"\0"))
    assert read(bytes(kept)).note is None
    kept[RECORD.offset("note")] = 0
    kept[4:8] = crc32c(kept[8:used]).to_bytes(4, "little")
    assert read(bytes(kept)) == replace(read(image), note=None)


def test_a_note_of_another_message_or_a_damaged_one_is_none() -> None:
    raw = NAMED.encode(76, 255)
    assert decode_note(raw, 76) == NAMED and decode_note(raw, 77) is None
    for at in range(len(raw)):
        assert decode_note(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :], 76) is None
        assert decode_note(raw[:at], 76) is None
    image, used = bytearray(written(NAMED)), RECORD.size + PART.size
    image[used + 30] ^= 1
    assert read(bytes(image)) == replace(read(written(None)), note=None)


def test_every_length_that_a_record_may_claim_is_bounded() -> None:
    for parts in (1, 16):
        image, used = bytearray(written(NAMED, parts)), RECORD.size + PART.size * parts
        for claimed in range(256):
            image[RECORD.offset("note")] = claimed
            image[4:8] = crc32c(image[8:used]).to_bytes(4, "little")
            assert read(bytes(image)).note in (None, NAMED)


def test_the_columns_of_a_scan_say_that_there_is_one() -> None:
    rows = np.frombuffer(written(NAMED) + written(None), dtype=DTYPE)
    assert (rows["note"] > 0).tolist() == [True, False]


@pytest.mark.parametrize("wrong", [
    {}, {"queue": 7, "attempts": 1}, {"queue": "X" * 17, "attempts": 1},
    {"queue": "A", "attempts": "1"}, {"queue": "A", "attempts": 1, "reason": 5},
    {"queue": "A", "attempts": 1, "first_ns": "x"}])
def test_a_packet_that_is_none_makes_no_note(wrong: dict[str, object]) -> None:
    assert note_of(wrong, 2, 2, 5) is None
    assert note_in(json.dumps(wrong).encode(), 2, 2, 5) is None


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"7"])
def test_bytes_that_are_no_packet_make_no_note(raw: bytes) -> None:
    assert note_in(raw, 2, 2, 5) is None


def test_numbers_beyond_what_a_note_holds_are_bounded() -> None:
    note = note_of({"queue": "A", "attempts": 10**30, "first_ns": -5, "reason": "r"}, 2, 2, 5)
    assert note == FailureNote(2, "A", 2, 255, 0, 5, "r")
    assert decode_note(note.encode(1, 255), 1) == note
