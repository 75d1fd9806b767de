"""The reader of configuration files: a mistake is told with file, line, key, what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omq.base.config_file import read_sections
from omq.base.errors import ConfigError
from omq.base.limits import CONF_FILE_BYTES_MAX


def _file(folder: Path, text: str | bytes) -> Path:
    path = folder / "x.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_sections_keys_and_lines(tmp_path: Path) -> None:
    path = _file(tmp_path, "# head\n\n[one]\nkey = a # b = c\n  other=\n[ two ]\r\nkey=ü\r\n")
    one, two = read_sections(path).values()
    assert (one.name, one.line, two.name, two.line) == ("one", 3, "two", 6)
    assert {name: (item.value, item.line) for name, item in one.entries.items()} == {
        "key": ("a # b = c", 4),
        "other": ("", 5),
    }
    assert two.entries["key"].value == "ü"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("key = 1\n", 1, "before the first section"),
        ("[a]\nkey\n", 2, "key = value"),
        ("[a]\n= 1\n", 2, "key = value"),
        ("[a]\nk = 1\nk = 2\n", 3, "see line 2"),
        ("[a]\n[b]\n[a]\n", 3, "see line 1"),
        ("[a\n", 1, "not a section heading"),
        ("[]\n", 1, "not a section heading"),
        ("[a]\nk = \x1b[2J\n", 2, "control character"),
        (b"[a]\nk = \xff\n", 2, "UTF-8"),
        ("#" * (CONF_FILE_BYTES_MAX + 1), 0, "too long"),
    ],
)
def test_mistakes(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_sections(path)
    assert caught.value.fields["file"] == path
    assert caught.value.fields["line"] == line
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_sections(tmp_path / "none.conf")
    assert "No such file" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "number"),
    [("7", 7), ("1_000", 1000), ("2 KiB", 2048), ("3MiB", 3 << 20), ("1 GiB", 1 << 30), ("5 B", 5)],
)
def test_numbers(tmp_path: Path, value: str, number: int) -> None:
    entry = read_sections(_file(tmp_path, f"[a]\nk = {value}\n"))["a"].entries["k"]
    assert entry.size(0, 1 << 40) == number
    if value.replace("_", "").isdigit():
        assert entry.integer(0, 1 << 40) == number


@pytest.mark.parametrize("value", ["", "-1", "1.5", "1 KB", "0x10", "٣", "11", "_1"])
def test_bad_numbers(tmp_path: Path, value: str) -> None:
    entry = read_sections(_file(tmp_path, f"[a]\nk = {value}\n"))["a"].entries["k"]
    with pytest.raises(ConfigError) as caught:
        entry.integer(0, 10)
    assert caught.value.fields["allowed"] == "0 to 10"
    assert caught.value.fields["line"] == 2


def test_truth(tmp_path: Path) -> None:
    entries = read_sections(_file(tmp_path, "[a]\ny = yes\nn = no\nx = true\n"))["a"].entries
    assert entries["y"].truth() is True
    assert entries["n"].truth() is False
    with pytest.raises(ConfigError, match="yes or no"):
        entries["x"].truth()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    try:
        sections = read_sections(_file(tmp_path, data))
    except ConfigError as error:
        assert str(error).isprintable()
    else:
        assert all(section.name == name for name, section in sections.items())
