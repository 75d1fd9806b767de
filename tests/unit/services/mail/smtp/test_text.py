"""The text of a message while it comes: dots, ends, limits, and memory that all sessions share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.services.mail.smtp_data import LONG_LINE, NO_MEMORY, TOO_LARGE, Memory, Text

PIECES = st.lists(st.sampled_from([b"\r", b"\n", b".", b"\r\n", b"\r\n.", b"x", b"yz"]))
SIZES = st.lists(st.integers(1, 7), min_size=1)


def feed(text: Text, data: bytes, sizes: list[int]) -> bytes:
    """Feed in pieces of these sizes, round and round; what is behind the end."""
    at = turn = 0
    while not text.ended:
        piece = data[at : at + sizes[turn % len(sizes)]]
        assert piece, "the text never ended"
        at, turn = at + len(piece), turn + 1
        rest = text.feed(piece)
    return rest + data[at:]


@given(PIECES, SIZES)
def test_pieces_make_no_difference(pieces: list[bytes], sizes: list[int]) -> None:
    data = b"".join(pieces) + b"\r\n.\r\nQUIT\r\n"
    end = (b"\r\n" + data).index(b"\r\n.\r\n")
    wanted = (b"\r\n" + data)[: end + 2].replace(b"\r\n.", b"\r\n")[2:]
    memory = Memory(1_000_000)
    text = Text(memory, 100_000, 1000)
    rest = feed(text, data, sizes)
    assert text.take() == wanted
    assert rest == data[end + 3 :]
    text.drop()
    assert memory.used == 0


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), SIZES)
def test_lines_have_a_limit(lengths: list[int], sizes: list[int]) -> None:
    text = Text(Memory(1_000_000), 100_000, 20)
    feed(text, b"".join(b"x" * each + b"\r\n" for each in lengths) + b".\r\n", sizes)
    assert text.refusal == (LONG_LINE if max(lengths) > 20 else "")


@pytest.mark.parametrize("line", [b"x" * 4096, b"\r\n" * 2048, b"\r" * 4096, b"..\r\n" * 1024])
def test_an_endless_text_costs_what_it_may(line: bytes) -> None:
    memory = Memory(300_000)
    text = Text(memory, 100_000, 10_000_000)
    for _ in range(100):
        text.feed(line)
        assert memory.used <= 300_000
    assert text.refusal == TOO_LARGE
    assert memory.used == 0
    assert text.feed(b"\r\n.\r\nNOOP") == b"NOOP"
    assert text.ended


def test_all_texts_share_one_memory() -> None:
    memory = Memory(400_000)
    texts = [Text(memory, 150_000, 1000) for _ in range(4)]
    for text in texts:
        for _ in range(100):
            text.feed(b"x" * 998 + b"\r\n")
    assert [text.refusal for text in texts] == ["", NO_MEMORY, NO_MEMORY, NO_MEMORY]
    texts[0].drop()
    assert memory.used == 0
    last = Text(memory, 150_000, 1000)
    last.feed(b"x\r\n.\r\n")
    assert last.take() == b"x\r\n"
