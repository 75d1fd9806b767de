"""All implementations of CRC-32C agree, whole and in parts; the slow one is never silent."""

from __future__ import annotations

import importlib
import subprocess
import sys

import crc32c as hardware
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.base import checksum

_CRCMOD = importlib.import_module("crcmod.predefined").mkPredefinedCrcFun("crc-32c")


def _bitwise(data: bytes, crc: int = 0) -> int:
    """The definition, a bit at a time: reflected polynomial 0x1EDC6F41, all ones in and out."""
    register = crc ^ 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_check_value() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283  # the catalogue's check value
    assert checksum.crc32c(b"") == 0
    assert checksum.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


@given(st.binary(max_size=200), st.integers(0, 200))
def test_all_implementations_agree(data: bytes, cut: int) -> None:
    expected = _bitwise(data)
    first, second = data[:cut], data[cut:]
    for function in (checksum.crc32c, hardware.crc32c, _CRCMOD):
        assert function(data) == expected
        assert function(second, function(first)) == expected


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_takes_every_buffer(kind: type) -> None:
    assert checksum.crc32c(kind(b"123456789")) == 0xE3069283


def _in_fresh_process(*hidden: str) -> subprocess.CompletedProcess[str]:
    """Import the module where the modules `hidden` cannot be imported."""
    code = (
        f"import sys\nfor name in {hidden!r}: sys.modules[name] = None\n"
        "from omq.base import checksum\n"
        "print(checksum.implementation(), hex(checksum.crc32c(b'123456789')))"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )


@pytest.mark.parametrize(
    ("hidden", "name", "warned"),
    [
        ((), checksum.HARDWARE, False),
        (("crc32c",), checksum.EXTENSION, False),
        (("crc32c", "crcmod._crcfunext"), checksum.PURE_PYTHON, True),
    ],
)
def test_choice_of_implementation(
    hidden: tuple[str, ...],
    name: str,
    warned: bool,  # noqa: FBT001
) -> None:
    result = _in_fresh_process(*hidden)
    assert result.stdout == f"{name} 0xe3069283\n"
    assert ("RuntimeWarning" in result.stderr) is warned
