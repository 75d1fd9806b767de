"""omsend and omread with a real queue manager: exactly once, stops, and the death of a reader."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omq.base.errors import Exit
from tests.bench.instance import MANAGER, QUEUE, Instance
from tests.process.processes import run_program

Start = Callable[..., subprocess.Popen[bytes]]
BOUND_S = 60.0  # only turns a hang into a failure


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("q"), messages_max=10_000)
    with (made.conf / "queues.conf").open("a") as stream:
        stream.write("death_delay_s = 0\n[ROUTER]\n")
    made.start(MANAGER)
    yield made
    made.stop(MANAGER)
    made.kill_all()


def _place(instance: Instance) -> list[str]:
    return ["--spool", str(instance.paths.root), "--conf", str(instance.conf)]


def _words(instance: Instance, name: str, *words: str) -> list[str]:
    launch = [sys.executable, "-P", "-m", "omq.cli.launch", name]
    return [*launch, *_place(instance), *words]


def _run(instance: Instance, name: str, *words: str, stdin: bytes = b"") -> bytes:
    done = run_program(name, [*_place(instance), *words], stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def _send(instance: Instance, tmp_path: Path, count: int) -> None:
    files = [tmp_path / f"{number}" for number in range(count)]
    for file in files:
        file.write_text(f"{file.name}\n")
    ids = _run(instance, "omsend", QUEUE, *map(str, files)).split()
    assert len(set(ids)) == count


@pytest.fixture
def start(instance: Instance) -> Iterator[Start]:
    """start(*words): an omread in a session of its own; nothing of it is left in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            _words(instance, "omread", QUEUE, *words), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=BOUND_S)


def _rest(instance: Instance) -> list[bytes]:
    """What is still on the queue, without waiting for more."""
    done = subprocess.run(_words(instance, "omread", QUEUE, "--timeout", "0.5", "--batch", "100"),
                          capture_output=True, timeout=BOUND_S, check=False)  # fmt: skip
    assert done.returncode in (Exit.OK, Exit.NO)
    return done.stdout.split()


def test_what_was_sent_is_read(instance: Instance) -> None:
    message_id = _run(instance, "omsend", QUEUE, "--priority", "9", "--property", "a=ü",
                      "--correlation-id", "abc", "--reply-to", QUEUE, "--group", "g1",
                      stdin=b"\xff\x00")  # fmt: skip
    record = json.loads(_run(instance, "omread", QUEUE, "--count", "1", "--json"))
    assert record["message_id"] == message_id.decode().strip()
    assert record["properties"] == {"a": "ü"}
    assert (record["priority"], record["body_base64"]) == (9, "/wA=")
    assert record["correlation_id"] == b"abc".hex()
    assert (record["reply_to"], record["group_id"]) == (QUEUE, "g1")


def test_large_file_comes_back_byte_by_byte(instance: Instance, tmp_path: Path) -> None:
    body = os.urandom(1_000_000)
    (tmp_path / "large").write_bytes(body)
    _run(instance, "omsend", QUEUE, str(tmp_path / "large"))
    assert _run(instance, "omread", QUEUE, "--count", "1", "--", "cat") == body


def test_several_readers_run_each_message_once(instance: Instance, tmp_path: Path) -> None:
    _send(instance, tmp_path, 20)
    out = _run(instance, "omread", QUEUE, "--readers", "3", "--count", "20", "--", "cat")
    assert sorted(out.split(), key=int) == [f"{number}".encode() for number in range(20)]


@pytest.mark.parametrize("readers", ["1", "2"])
def test_stop_finishes_what_is_in_hand_and_gives_back_the_rest(
    instance: Instance, tmp_path: Path, start: Start, readers: str
) -> None:
    _send(instance, tmp_path, 6)
    # The command says its number, then waits until the test lets go of the lock file.
    lock, script = tmp_path / "lock", 'read n; echo $n; flock "$0" true'
    lock.touch()
    held = subprocess.Popen(["flock", str(lock), "cat"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)  # fmt: skip
    assert held.stdin is not None
    assert held.stdout is not None
    held.stdin.write(b"held\n")
    held.stdin.flush()
    assert held.stdout.readline() == b"held\n"
    reader = start("--readers", readers, "--batch", "3", "--", "sh", "-c", script, str(lock))
    assert reader.stdout is not None
    first = reader.stdout.readline()
    reader.terminate()
    held.communicate(timeout=BOUND_S)
    more = reader.stdout.read()  # communicate leaves out what readline has read ahead
    _, error = reader.communicate(timeout=BOUND_S)
    assert (reader.returncode, error) == (0, b"")
    taken = (first + more).split()
    assert 1 <= len(taken) < 6
    assert sorted(taken + _rest(instance), key=int) == [f"{n}".encode() for n in range(6)]


def test_killed_reader_is_reported_and_its_message_comes_again(
    instance: Instance, tmp_path: Path, start: Start
) -> None:
    _send(instance, tmp_path, 1)
    # $PPID is the reader that runs the command; the second attempt ends well.
    script = 'echo "$PPID $OMQ_REDELIVERED $OMQ_ATTEMPTS"; test $OMQ_ATTEMPTS = 1 || exec sleep 999'
    reader = start("--readers", "2", "--count", "2", "--", "sh", "-c", script)
    assert reader.stdout is not None
    first, redelivered, attempts = reader.stdout.readline().split()
    assert (redelivered, attempts) == (b"0", b"0")
    os.kill(int(first), signal.SIGKILL)
    second, redelivered, attempts = reader.stdout.readline().split()
    assert (redelivered, attempts) == (b"1", b"1")
    assert second != first
    _, error = reader.communicate(timeout=BOUND_S)
    assert reader.returncode == Exit.OS
    assert b"signal 9" in error
    assert _rest(instance) == []


def test_mail_goes_on_the_router_queue(instance: Instance) -> None:
    _run(instance, "omsend", "-t", stdin=b"To: bob\nBcc: eve\n\nText\n")
    record = json.loads(_run(instance, "omread", "ROUTER", "--count", "1", "--json"))
    assert record["properties"]["mail.to"] == "bob\neve"
    assert "eve" not in record["body"]
