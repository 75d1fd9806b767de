"""A share of the cases of a search, for a run that cannot take them all (ADR 0087).

OMQ_SHARE=K/N (K from 1 to N) is the K-th of N shares; without it everything is taken. What is
searched has very many cases of one kind: states of a power cut, calls that fail, points at which
somebody dies, planted bugs. All shares together are all cases, each case is in one, and which share
a run of CI takes follows from its commit. What is no such case runs always.

`@pytest.mark.cases` says that the tests of a function are such cases.

Errors: ValueError for an OMQ_SHARE of another form.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

VARIABLE: Final = "OMQ_SHARE"
MARK: Final = "cases: cases of one kind, of which a run of CI takes a share (tests/share.py)"
T = TypeVar("T")


def share() -> tuple[int, int]:
    """(which, from 0; of how many)."""
    said = os.environ.get(VARIABLE, "1/1")
    found = re.fullmatch(r"([0-9]{1,3})/([0-9]{1,3})", said)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f"{VARIABLE}={said}: K/N with K from 1 to N is wanted")
    return int(found[1]) - 1, int(found[2])


def of_cases(cases: Sequence[T]) -> list[T]:
    """The cases of this share by their place; at least one where there are any."""
    which, parts = share()
    return list(cases[which % max(1, min(parts, len(cases))) :: parts])


def has(name: str) -> bool:
    """Whether the case of this name is in it, whatever others there are."""
    which, parts = share()
    return zlib.crc32(name.encode()) % parts == which


def part(count: int, least: int = 1) -> int:
    """So many of `count`."""
    return max(least, count // share()[1])


class Share:
    """A plugin: leaves out the marked tests of other shares."""

    def pytest_report_header(self) -> str | None:
        which, parts = share()
        return None if parts == 1 else f"of the cases: {VARIABLE}={which + 1}/{parts}"

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        others = [item for item in items
                  if item.get_closest_marker("cases") and not has(item.nodeid)]
        if others:
            config.hook.pytest_deselected(items=others)
            left_out = set(others)
            items[:] = [item for item in items if item not in left_out]
