"""LIMITS.md lists every key of omq.conf that counts things, with the bytes that it allows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from omq.base.config import load_settings
from omq.base.settings import DEFAULTS, KEYS
from omq.base.sizes import shown
from tests.tidy.tree import ROOT

TEXT = (ROOT / "lib/omq/docs/LIMITS.md").read_text(encoding="utf-8")
UNIT = re.compile(r"(_s|_ms|_us|_days|_percent|_port|_s_min)$|bytes")
"""Keys whose name ends in a unit of time, of size, or none at all of things."""


def rows() -> list[list[str]]:
    listed = TEXT[: TEXT.index("## Limits that count things of one size")]
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for line in listed.splitlines() if line.startswith("| `")]


def of_one_size() -> list[str]:
    part = TEXT[TEXT.index("## Limits that count things of one size"):
                TEXT.index("## The disk, from the first byte")]
    return re.findall(r"`(\w+)`", part)


def counting() -> set[str]:
    values: dict[str, Any] = {name: getattr(DEFAULTS, name) for name in KEYS}
    return {name for name, value in values.items()
            if isinstance(value, int) and not isinstance(value, bool) and not UNIT.search(name)}


def test_every_key_that_counts_is_listed_once() -> None:
    listed = [row[0].strip("`") for row in rows()] + of_one_size()
    assert len(listed) == len(set(listed))
    assert set(listed) == counting()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0].strip("`"))
def test_a_row_says_what_is_so(row: list[str]) -> None:
    key, default, counts, most, bound = row
    assert default == str(getattr(DEFAULTS, key.strip("`"))) and counts and bound
    found = re.fullmatch(r"`([\w *]+)` = (.+)", most)
    assert found is not None, most
    size = 1
    for factor in found[1].split(" * "):
        size *= getattr(DEFAULTS, factor)
    assert found[2] in (shown(size), shown(size).replace(".0 ", " "), _tebi(size))


def _tebi(size: int) -> str:
    return f"{size / (1 << 40):.1f} TiB"


def test_what_the_rows_name_are_keys() -> None:
    """Those of queues.conf besides."""
    named = {word for row in rows() for word in re.findall(r"`(\w+)`", " ".join(row))}
    assert named - set(KEYS) == {"max_depth", "max_length"}


def test_the_least_disk_is_reckoned_from_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "omq.conf").write_text("[journal]\njournal_file_bytes = 8 MiB\n"
                                       "[store]\ndisk_reserve_bytes = 16 MiB\n")
    assert load_settings(tmp_path).journal_file_bytes == 8 << 20, "as the document says it"
    mib = 1 << 20
    least = DEFAULTS.disk_reserve_bytes + (2 + DEFAULTS.journal_files_kept + 2) * (
        DEFAULTS.journal_file_bytes)
    assert f"{least // mib} MiB. Below" in TEXT
    assert "16 MiB`: 80 MiB" in TEXT and 16 + 8 * 8 == 80
    assert f"{DEFAULTS.archive_days} days" in TEXT and DEFAULTS.archive_disk_percent == 20
