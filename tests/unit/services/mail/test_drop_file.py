"""The bytes of a file of the maildrop: golden, and nothing of a damaged one is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.base.checksum import crc32c
from omq.base.errors import DropDamaged
from omq.services.mail.drop_file import Dropped, decode, encode

MAIL = Dropped("a" * 48, 1000, 1_700_000_000_000_000_000, 4, {"mail.from": "é@x"}, b"To: b\r\n\r\n")
GOLDEN = (b'OMQDROP1 %08x\n{"id": "' + b"a" * 48 + b'", "uid": 1000, "arrival": 1700000000000000000,'
          b' "priority": 4, "properties": {"mail.from": "\\u00e9@x"}}\nTo: b\r\n\r\n')


def test_golden_bytes() -> None:
    assert encode(MAIL) == GOLDEN % crc32c(GOLDEN[14:])
    assert MAIL.name == f"01700000000000000000-{'a' * 48}.mail"
    assert decode(encode(MAIL), MAIL.name) == MAIL


@given(st.integers(0, len(encode(MAIL)) - 1), st.integers(1, 255))
def test_any_damage_is_seen(at: int, change: int) -> None:
    data = bytearray(encode(MAIL))
    data[at] ^= change
    with pytest.raises(DropDamaged, match="quarantine"):
        decode(bytes(data), MAIL.name)


@pytest.mark.parametrize("rest", [b"", b"{}", b"{}\n", b"[]\nx", b"[" * 5000 + b"\n",
                                  b'{"id": 1, "uid": "x"}\n', GOLDEN[14:].replace(b'"\\u', b'"\\w'),
                                  GOLDEN[14:].replace(b'"\\u00e9@x"', b"1")])
def test_a_right_checksum_is_not_enough(rest: bytes) -> None:
    with pytest.raises(DropDamaged):
        decode(b"OMQDROP1 %08x\n%s" % (crc32c(rest), rest), MAIL.name)


def test_another_name_is_damage() -> None:
    with pytest.raises(DropDamaged, match="another name"):
        decode(encode(MAIL), "0" + MAIL.name[1:].replace("1", "2", 1))
