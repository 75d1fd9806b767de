"""FORMATS.md says what the code says: every layout, column and value, with its offset and size."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from enum import Enum
from types import ModuleType

import pytest

from omq.format import index, poolctrl
from omq.format.frame_rules import RULES, Entry, Rule, Until
from omq.format.layout import Layout
from tests.tidy.tree import ROOT

TEXT = (ROOT / "lib/omq/docs/FORMATS.md").read_text(encoding="utf-8")
TYPES = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64", "q": "i64", "d": "f64"}
COLUMNS = [name for name in vars(index) if name.endswith("_COLUMNS")]


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for path in sorted((ROOT / "lib/omq/format").glob("*.py")):
        if path.stem != "__init__":
            yield path.stem, importlib.import_module(f"omq.format.{path.stem}")


def _is_view(layout: Layout, module: ModuleType) -> bool:
    """Whether it is only the beginning of another layout there, for a quick look."""
    return any(
        layout is not other and layout.names == other.names[: len(layout.names)]
        and other.text.startswith(layout.text)
        for other in vars(module).values()
        if isinstance(other, Layout)
    )


LAYOUTS = {
    f"{stem}.{name}": value
    for stem, module in _modules()
    for name, value in vars(module).items()
    if isinstance(value, Layout) and not _is_view(value, module)
}
VALUES = {
    f"{stem}.{name}": value
    for stem, module in _modules()
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Enum) and value.__module__ == module.__name__
}


def _table(heading: str) -> list[list[str]]:
    """The cells of the table right below a heading, without its two head lines."""
    found = re.search(rf"^### {re.escape(heading)}\n\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert found, f"FORMATS.md has no table '### {heading}'"
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in found[1].splitlines()[2:]
    ]


def _type(code: str) -> str:
    return TYPES.get(code) or f"{code.removesuffix('s')} bytes"


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str) -> None:
    layout = LAYOUTS[name]
    codes = re.findall(r"\d+s|[A-Za-z]", layout.text)
    wanted = [
        [str(layout.offset(field)), _type(code), field]
        for field, code in zip(layout.names, codes, strict=True)
    ]
    rows = _table(f"Layout {name}: {layout.size} bytes")
    assert [row[:3] for row in rows] == wanted
    assert all(row[3] for row in rows)


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    rows = _table(f"Values {name}")
    wanted = [[str(member.value), member.name] for member in VALUES[name]]
    assert [row[:2] for row in rows] == wanted
    assert all(row[2] for row in rows)


@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name: str) -> None:
    items = [item.split(":") for item in vars(index)[name].split()]
    rows = _table(f"Columns index.{name}")
    assert [row[:2] for row in rows] == [[_type(code), column] for column, code in items]


def rule_cells(name: str, rule: Rule) -> list[str]:
    """A row of the table of rules, as FORMATS has it."""
    words = ("makes", "leaves", "replaces", "ends", "stops", "forgets")
    does = [word for word in words if getattr(rule, word)]
    return [name, rule.about.value, _listed(sorted(by.value for by in rule.by)), _listed(does),
            rule.comes.value, _entry(rule.entry), rule.hand.value, rule.payload.value,
            rule.argument.value, "yes" if rule.reasoned else "-"]


def _entry(entry: Entry | None) -> str:
    if entry is None:
        return "-"
    until = "" if entry.until is Until.NEVER else f" until {entry.until.value}"
    return _listed([f"{entry.state.name}{until}", *["attempts"] * entry.attempts,
                    *["deferral"] * entry.defers])


def _listed(words: list[str]) -> str:
    return ", ".join(words) or "-"


def test_rules_of_frames() -> None:
    assert _table("Rules frame_rules.RULES") == [
        rule_cells(kind.name, rule) for kind, rule in RULES.items()]


def test_nothing_else_is_described() -> None:
    headings = re.findall(r"^### (Layout|Values|Columns) ([\w.]+)", TEXT, re.MULTILINE)
    described = [name for _, name in headings]
    assert sorted(described) == sorted(
        [*LAYOUTS, *VALUES, *(f"index.{name}" for name in COLUMNS)]
    )


def test_versions_are_those_of_the_code() -> None:
    """Every layout with a version says one that its module knows, and each module's newest is
    said by one."""
    said = dict[str, set[int]]()
    for name, layout in LAYOUTS.items():
        if "version" in layout.names:
            rows = _table(f"Layout {name}: {layout.size} bytes")
            (text,) = (row[3] for row in rows if row[2] == "version")
            numbers = set(map(int, re.findall(r"\d+", text)))
            assert numbers <= _versions(name), (name, text)
            said.setdefault(name.partition(".")[0], set()).update(numbers)
    assert len(said) > 10
    for stem, numbers in said.items():
        assert max(_versions(stem)) in numbers, f"{stem}: FORMATS says {numbers} only"


def _versions(name: str) -> set[int]:
    """Those that the module of a layout knows: up to its constant VERSION or FORMAT."""
    module = importlib.import_module(f"omq.format.{name.partition('.')[0]}")
    known = [value for key, value in vars(module).items()
             if (key.endswith("VERSION") or key == "FORMAT") and type(value) is int]
    return set(range(1, max(known) + 1))


def test_places_of_the_index_and_slots() -> None:
    for at in (index.HEADER_BYTES, index.SELECTOR_AT, index.COUNTERS_AT, index.TABLES_AT,
               index.QUEUE_NAME_BYTES, index.READER_NAME_BYTES, poolctrl.SLOT_BYTES):
        assert re.search(rf"\b{at}\b", TEXT), at
