"""Standard streams that are closed: no file of omq becomes one, and a command says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omq.base.errors import Exit

_OPENED = """
import os, sys
from omq.cli import standard_streams
print(sorted(standard_streams.fill()), file=sys.stderr)
sys.stderr.flush()
with open(sys.argv[1], "w") as file:
    places = [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)]
    file.write(" ".join([str(file.fileno() > 2), *places]))
"""


def _closed(redirections: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """The interpreter with these, some of its streams closed by a shell."""
    return subprocess.run(["sh", "-c", f'exec "$0" "$@" {redirections}', sys.executable, "-P",
                           *words], input=b"body", capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(("redirections", "null"), [
    ("<&- >&- 2>&-", {0, 1, 2}), ("2>&-", {2}), ("<&-", {0}), (">&-", {1}), ("<&- 2>&-", {0, 2}),
])
def test_no_file_becomes_a_standard_stream(tmp_path: Path, redirections: str, null: set[int]
                                           ) -> None:
    ended = _closed(redirections, "-c", _OPENED, str(tmp_path / "seen"))
    above, *places = (tmp_path / "seen").read_text().split(" ")
    assert ended.returncode == 0 and above == "True"
    assert {number for number, place in enumerate(places) if place == "/dev/null"} == null
    assert 2 in null or ended.stderr.decode().strip() == str(sorted(null))


def test_a_command_that_cannot_say_what_it_found_does_not_end_well(tmp_path: Path) -> None:
    (tmp_path / "queues.conf").write_text("[ORDERS]\n")
    words = ("-m", "omq.cli.launch", "omq", "conf", "--conf", str(tmp_path))
    assert _closed("", *words).returncode == 0
    ended = _closed(">&-", *words)
    assert ended.returncode == Exit.CANT_CREATE
    assert ended.stderr.decode() == (
        "omq: the output cannot be written: standard output is closed; choose another file\n")


def test_a_closed_input_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "omqtest-pull/spool").mkdir(parents=True)
    words = ("-m", "omq.cli.launch", "omqtest", "powercut", "--verify", "--on", str(tmp_path))
    ended = _closed("<&-", *words)
    assert ended.returncode == Exit.NO_INPUT
    assert ended.stderr.decode() == "omqtest: standard input cannot be read: it is closed\n"


def test_a_mistake_is_said_where_there_is_no_standard_error() -> None:
    assert _closed("2>&-", "-m", "omq.cli.launch", "omstat", "--bad").returncode == Exit.USAGE
