"""The bytes of every format are those of the golden files: a change of one is a new version.

`pytest --regenerate-golden tests/unit/format` writes them anew; look at the difference before you
commit it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omq.format import (
    archive,
    double_write,
    failure_note,
    index,
    journal,
    message,
    pool,
    pool_contents,
    poolctrl,
    standby,
    store,
    wire,
)
from omq.format.layout import Layout
from tests.unit.format import samples

GOLDEN = Path(__file__).parents[2] / "golden" / "format"


@pytest.fixture(params=sorted(samples.GOLDEN))
def golden(request: pytest.FixtureRequest) -> tuple[bytes, bytes]:
    """(bytes made now, bytes of the golden file)"""
    made = samples.GOLDEN[request.param]()
    path = GOLDEN / request.param
    if request.config.getoption("--regenerate-golden"):
        path.write_bytes(made)
    return made, path.read_bytes()


def test_golden(golden: tuple[bytes, bytes]) -> None:
    assert golden[0] == golden[1]


def test_layouts(request: pytest.FixtureRequest) -> None:
    """Field names, widths and order: what the golden bytes cannot tell apart."""
    lines = sorted(
        f"{module.__name__}.{name}: {' '.join(layout.names)} {layout.text}\n"
        for module in (archive, double_write, failure_note, index, journal, message, pool,
                       pool_contents, poolctrl, standby, store, wire)
        for name, layout in vars(module).items()
        if isinstance(layout, Layout)
    )
    assert len(lines) >= 18
    path = GOLDEN / "layouts.txt"
    if request.config.getoption("--regenerate-golden"):
        path.write_text("".join(lines), encoding="utf-8")
    assert "".join(lines) == path.read_text(encoding="utf-8")


def test_a_poolctrl_of_format_1_is_read() -> None:
    """The bytes that earlier versions wrote: all is there but what the pool files hold."""
    old = poolctrl.decode((GOLDEN / "poolctrl_slot_1.bin").read_bytes())
    new = poolctrl.decode(samples.control_slot())
    assert isinstance(old, poolctrl.PoolControl) and isinstance(new, poolctrl.PoolControl)
    assert old.contents is None and replace(new, contents=None) == old
    assert old.encode() == (GOLDEN / "poolctrl_slot_1.bin").read_bytes()


def test_a_double_write_file_of_format_1_is_read() -> None:
    old = double_write.decode((GOLDEN / "double_write_1.bin").read_bytes(), samples.UUID)
    new = double_write.decode(samples.double_write_file(), samples.UUID)
    assert isinstance(old, double_write.DoubleWrite) and isinstance(new, double_write.DoubleWrite)
    assert list(old.images) == list(new.images) and old.generation == new.generation
    assert old.after is None and new.after is not None
    assert new.after.contents == samples.contents()
