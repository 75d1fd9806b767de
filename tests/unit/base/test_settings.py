"""omq.conf: the table, the shipped file, and what is refused."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from omq.base.config import load_settings
from omq.base.errors import ConfigError, Exit
from omq.base.paths import shipped_conf
from omq.base.settings import DEFAULTS, KEYS, Settings
from omq.base.settings_file import SECTION_TITLES, contradiction


def _conf(folder: Path, text: str) -> Path:
    (folder / "omq.conf").write_text(text, encoding="utf-8")
    return folder


def test_defaults(tmp_path: Path) -> None:
    assert load_settings() == DEFAULTS
    assert load_settings(tmp_path) == DEFAULTS  # a missing file is the shipped one
    assert contradiction(DEFAULTS) is None
    with pytest.raises(FrozenInstanceError):
        DEFAULTS.clients_max = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", KEYS)
def test_default_is_in_its_range(name: str) -> None:
    key, default = KEYS[name], getattr(DEFAULTS, name)
    assert key.section in SECTION_TITLES
    assert len(key.reason) > 10
    if isinstance(default, int) and not isinstance(default, bool):
        assert key.low <= default <= key.high


def test_shipped_file_with_every_key_taken_in_is_the_default(tmp_path: Path) -> None:
    lines = (shipped_conf() / "omq.conf").read_text(encoding="utf-8").splitlines()
    active = [
        line[1:] if line.startswith("#") and line[1:].split(" =")[0] in KEYS else line
        for line in lines
    ]
    assert sum(line.split(" =")[0] in KEYS for line in active) == len(KEYS)
    assert load_settings(_conf(tmp_path, "\n".join(active))) == DEFAULTS


def test_values_of_every_kind(tmp_path: Path) -> None:
    conf = _conf(
        tmp_path,
        "[journal]\narchive = delete\njournal_file_bytes = 8 MiB\n"
        "[daemons]\nqm_dont_read_messages_at_start = yes\n"
        "[mail]\nunix_smarthost = [::1]:2526\nhostname = mail.example.org\n",
    )
    assert load_settings(conf) == replace(
        DEFAULTS,
        archive="delete",
        journal_file_bytes=8 << 20,
        qm_dont_read_messages_at_start=True,
        unix_smarthost="[::1]:2526",
        hostname="mail.example.org",
    )


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("[jurnal]\n", 1, "[jurnal]", "unknown section"),
        ("[journal]\narchiv = keep\n", 2, "archiv", "journal_file_bytes"),
        ("[mail]\narchive = keep\n", 2, "archive", "in section [journal]"),
        ("[journal]\narchive = perhaps\n", 2, "archive", "keep or delete"),
        ("[ipc]\nclients_max = 0\n", 2, "clients_max", "1 to 10000"),
        ("[mail]\nhostname = a b\n", 2, "hostname", "a host name"),
        ("[journal]\n\njournal_page_bytes = 5000\n", 3, "journal_page_bytes", "power of two"),
        ("[journal]\njournal_file_bytes = 1 MiB\n", 2, "journal_file_bytes", "block"),
        ("[index]\nqueue_entries_max = 1000\n", 2, "queue_entries_max", "messages_max"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, line: int, key: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(_conf(tmp_path, text))
    assert caught.value.exit_code == Exit.CONFIG
    assert caught.value.fields["file"] == tmp_path / "omq.conf"
    assert caught.value.fields["line"] == line
    assert caught.value.fields["key"] == key
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"block_bytes_max": 65536 + 1}, "block_bytes_max"),
        ({"channel_bytes": 65536}, "channel_bytes"),
        ({"body_bytes_max": 1024}, "body_bytes_max"),
        ({"stop_timeout_s": 10}, "stop_timeout_s"),
        ({"restart_backoff_min_s": 600}, "restart_backoff_max_s"),
        ({"unix_retry_step_s": 7200}, "unix_retry_max_s"),
    ],
)
def test_contradictions(change: dict[str, int], key: str) -> None:
    settings: Settings = replace(DEFAULTS, **change)  # type: ignore[arg-type]
    complaint = contradiction(settings)
    assert complaint is not None
    assert complaint[0] == key


def test_named_directory_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not there"):
        load_settings(tmp_path / "none")


def test_settings_are_what_was_given_and_the_defaults() -> None:
    given = Settings(block_frames_max=5000)
    assert (given.block_frames_max, given.block_bytes_max) == (5000, Settings().block_bytes_max)
    assert replace(Settings(), block_frames_max=5000) == given != Settings()
    assert given != "settings"
    with pytest.raises(TypeError, match="nonsense"):
        Settings(nonsense=1)
    with pytest.raises(FrozenInstanceError):
        given.block_frames_max = 1  # type: ignore[misc]
    assert hash(given) == hash(Settings(block_frames_max=5000))
