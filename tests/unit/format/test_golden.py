"""The bytes of every format are those of the golden files: a change of one is a new version.

`pytest --regenerate-golden tests/unit/format` writes them anew; look at the difference before you
commit it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.format import archive, double_write, index, journal, message, pool, poolctrl, store, wire
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
        for module in (archive, double_write, index, journal, message, pool, poolctrl, store, wire)
        for name, layout in vars(module).items()
        if isinstance(layout, Layout)
    )
    assert len(lines) >= 18
    path = GOLDEN / "layouts.txt"
    if request.config.getoption("--regenerate-golden"):
        path.write_text("".join(lines), encoding="utf-8")
    assert "".join(lines) == path.read_text(encoding="utf-8")
