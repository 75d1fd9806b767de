"""One syntax for sizes, everywhere where a size is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.config import load_queues, load_settings
from omq.base.errors import BadRequest, ConfigError
from omq.base.limits import MIB
from omq.base.sizes import parse_size
from omq.core.look.selection import parse
from omq.services.mail.routes_file import load_routes

SAME = ("64M", "64 M", "64m", "64MiB", "64 MiB", "64 mib", "67108864", "67_108_864", "65536K",
        "67108864B", "67108864 B")
WRONG = ("64MB", "64 kB", "M", "", "6.4M", "64MM", "64 M iB", "0x40", "64P", "_1")


@pytest.mark.parametrize("text", SAME)
def test_all_say_the_same_everywhere(tmp_path: Path, text: str) -> None:
    assert parse_size(text) == 64 * MIB
    (tmp_path / "queues.conf").write_text(f"[A]\nmax_length = {text}\n")
    assert load_queues(tmp_path)["A"].max_length == 64 * MIB
    (tmp_path / "omq.conf").write_text(f"[store]\ndisk_reserve_bytes = {text}\n")
    assert load_settings(tmp_path).disk_reserve_bytes == 64 * MIB
    assert parse(f"'size>{text}'").root.parts
    (tmp_path / "routes.conf").write_text(f"[router]\nblind_bytes_max = {text}\n")
    assert load_routes(tmp_path).blind_bytes_max == 64 * MIB


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_size_is_refused_everywhere(tmp_path: Path, text: str) -> None:
    assert parse_size(text) is None
    (tmp_path / "queues.conf").write_text(f"[A]\nmax_length = {text}\n")
    with pytest.raises(ConfigError, match="64M, 64 MiB, 67108864"):
        load_queues(tmp_path)
    with pytest.raises(BadRequest):
        parse(f"'size>{text}'")


def test_a_number_that_is_no_size_takes_no_unit(tmp_path: Path) -> None:
    (tmp_path / "queues.conf").write_text("[A]\nmax_depth = 1K\n")
    with pytest.raises(ConfigError, match="'1K' is not a whole number"):
        load_queues(tmp_path)
    (tmp_path / "omq.conf").write_text("[daemons]\nwatchdog_s = 1M\n")
    with pytest.raises(ConfigError, match="watchdog_s: '1M' is not a whole number"):
        load_settings(tmp_path)
