"""What OPERATE says under "Common questions" and "Backup": each command as it is written there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import omq
from omq.format.index import EntryState
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
OPERATE: Final = (ROOT / "lib/omq/docs/OPERATE.md").read_text(encoding="utf-8")
SECTION: Final = OPERATE.partition("## Common questions\n")[2].partition("\n## ")[0]
ROWS: Final = [tuple(cell.strip() for cell in line.strip("|").split("|"))
               for line in SECTION.splitlines()
               if line.startswith("| ") and not line.startswith("| question")]

SAID: Final = {
    "omqwhy QUEUE": "nobody reads it",
    "omqwhy ID": "1 on A (ready",
    "omqlog --message ID": "put on A",
    "omqdump -e 'v QUEUE'": "Messages=2",
    "omstat -p": "Service Router",
    "omq flush QUEUE": "1 message",
    "omrequeue --where queue=POISON": "1 of 1 message",
    "omqdump -e 'M QUEUE OTHER --where queue=QUEUE --yes'": "move to B",
    "omhold -q QUEUE": "A is held",
    "omrelease -q QUEUE": "A is released",
    "omq queue alter QUEUE rate=5/min": "",
    "omq queue alter QUEUE limit_by=property:customer key_in_work_max=2": "",
    "omq conf": "nothing wrong",
    "omq conf --changed": "journal_file_bytes",
    "omq conf --show": "journal_page_bytes = 4 KiB",
    "omstat -a": "Queue Manager",
    "omq health": "-> omon pool",
    "omshowlog -l error": "Message put on the POISON queue",
    "omqlog --operator": "omhold",
}
"""Each command of the table, and what it says here; the order is that of the table."""
EMPTIED: Final = ("omqdump -e 'D QUEUE --where queue=QUEUE --yes'", "omqdump --undo all --yes",
                  "omq queue clear QUEUE")
"""Those of test_a_queue_is_emptied."""
ELSEWHERE: Final = {  # and which test has what it does
    "omqlog --mail ID": "tests/process/test_operator_tools.py",
    "omfreeq QUEUE -p PID": "tests/process/test_operator_tools.py",
    "omq peers --hold NAME": "tests/process/test_channels.py",
    "omq peers --release NAME": "tests/process/test_channels.py",
    "gpasswd -a NAME omq-clients": "tests/process/test_trust.py",
}


def commands() -> list[str]:
    """All of the table."""
    found = [command for _, cell in ROWS for command in re.findall(r"`([^`]+)`", cell)]
    return [each for each in found if re.match(r"(om|gpasswd)[a-z]* [^ ]", each)]


def test_each_command_has_its_test() -> None:
    assert set(commands()) == SAID.keys() | ELSEWHERE.keys() | set(EMPTIED)
    for name in ELSEWHERE.values():
        assert (ROOT / name).is_file()


def run(instance: Instance, command: str, **words: str) -> subprocess.CompletedProcess[str]:
    """A command of the table, with its words filled in."""
    for name, value in words.items():
        command = re.sub(rf"\b{name}\b", value, command)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                   "OMQ_SPOOL": str(instance.root), "OMQ_CONF": str(instance.conf)}
    return subprocess.run(shlex.split(command), env=environment, capture_output=True, text=True,
                          timeout=WAIT_S, check=False)


@pytest.fixture
def lively(omq_instance: Instance) -> tuple[Instance, str]:
    """Two messages on A, one of them put off; one on POISON."""
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    with omq.connect(omq_instance.root, name="shop") as connection:
        ready = connection.put("A", b"ready")
        connection.put("A", b"later", delay_s=3600.0)
        connection.queues.define("BAD", attempts_max=1)
        connection.put("BAD", b"bad")
        with connection.reader("BAD") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            message.fail("it is bad")
    return omq_instance, ready


def test_the_commands_answer(lively: tuple[Instance, str]) -> None:
    instance, ready = lively
    wrong = {}
    for command, said in SAID.items():
        done = run(instance, command, QUEUE="A", OTHER="B", ID=ready)
        if done.returncode not in (0, 1) or said not in done.stdout or "Traceback" in done.stderr:
            wrong[command] = (done.returncode, done.stdout, done.stderr)
    assert wrong == {}
    with omq.connect(instance.root, name="look") as connection:
        assert [(each.body, each.state) for each in connection.browse("B")] == [
            (b"ready", EntryState.READY), (b"later", EntryState.READY)]
        assert not list(connection.browse("A"))
        assert [each.body for each in connection.browse("BAD")] == [b"bad"]
        keys = connection.queues.show("A").keys
        assert (keys["rate"], keys["limit_by"], keys["key_in_work_max"]) == (
            "5/min", "property:customer", "2")


def test_a_queue_is_emptied(omq_instance: Instance) -> None:
    """With undo, and without."""
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    with omq_instance.connect() as connection:
        for number in range(3):
            connection.put("A", b"%d" % number)
        left = []
        for command in EMPTIED:
            done = run(omq_instance, command, QUEUE="A")
            assert done.returncode == 0, (command, done)
            left.append([each.body for each in connection.browse("A")])
    assert left == [[], [b"0", b"1", b"2"], []]


def test_a_backup_is_put_back(omq_instance: Instance, tmp_path: Path) -> None:
    """Copied while it was stopped: later messages are lost, those processed later come back."""
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    with omq_instance.connect() as connection:
        connection.put("A", b"before")
    omq_instance.stop(MANAGER, WRITER)
    subprocess.run(["cp", "-a", omq_instance.root, tmp_path / "backup"], check=True)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    assert [message.body for message in omq_instance.drain("A")] == [b"before"]
    with omq_instance.connect() as connection:
        connection.put("A", b"after")
    omq_instance.stop(MANAGER, WRITER)
    omq_instance.root.rename(tmp_path / "moved away")
    subprocess.run(["cp", "-a", tmp_path / "backup", omq_instance.root], check=True)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    assert [message.body for message in omq_instance.drain("A")] == [b"before"]
