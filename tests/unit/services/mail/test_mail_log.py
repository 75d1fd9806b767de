"""logs/mail.log: lines that tools read, one step one write, and a loss that is told."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omq.base import side_files
from omq.services.mail.mail_log import (
    MailLog,
    accepted_lines,
    arrival_ns,
    delay_s,
    delivery,
    mail_id,
)

# What pflogsumm takes apart: month, day, time, host, name/program[pid], id, the rest.
LINE = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\S+) omq/(\w+)\[(\d+)\]: "
                  r"([0-9A-Za-z]+): (.*)")
STATUS = re.compile(r"to=<([^>]*)>, relay=(\S+), delay=([\d.]+), dsn=(\d\.\d+\.\d+), "
                    r"status=(sent|deferred|bounced) \((.*)\)")


class FullCalls(side_files.Calls):
    """Refuses writes while `full`."""

    full = False
    writes = 0

    def write(self, fd: int, data: bytes) -> int:
        self.writes += 1
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)


@pytest.fixture
def calls() -> Iterator[FullCalls]:
    chosen = FullCalls()
    before = side_files.use(chosen)
    yield chosen
    side_files.use(before)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[MailLog]:
    made = MailLog(tmp_path, "mx.test", 400)
    yield made
    made.close()


def lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "mail.log").read_text().splitlines()


def test_a_line_of_a_delivery_can_be_taken_apart(log: MailLog, tmp_path: Path) -> None:
    log.write([("smtp", delivery("ab" * 24, "x@far.test", "192.0.2.1", 1.234, "4.4.1", "deferred",
                                 "450 later"))])
    (line,) = lines(tmp_path)
    found = LINE.fullmatch(line)
    assert found
    assert found.group(6, 7, 8, 9) == ("mx.test", "smtp", str(os.getpid()), "ab" * 24)
    status = STATUS.fullmatch(found[10])
    assert status
    assert status.groups() == ("x@far.test", "192.0.2.1", "1.23", "4.4.1", "deferred", "450 later")


def test_who_has_it_and_the_alias_that_led_there(log: MailLog, tmp_path: Path) -> None:
    log.write([("local", delivery("id", "alice", "local", 0.0, "2.0.0", "sent", "delivered",
                                  "team@here.test"))])
    (line,) = lines(tmp_path)
    assert "]: id: to=<alice>, orig_to=<team@here.test>, relay=local, delay=0.00," in line


def test_strangers_cannot_write_lines(log: MailLog, tmp_path: Path) -> None:
    evil = "x\r\nNov 1 00:00:00 h omq/smtp[1]: y: \x1b[31m\u2028\x85"
    log.write(accepted_lines("id", evil, evil, evil, 1, 1))
    log.refused("RCPT", evil, "550 no", evil, evil)
    text = (tmp_path / "mail.log").read_text()
    assert len(text.splitlines()) == 4
    assert all(line.isprintable() for line in text.split("\n"))


def test_lines_that_were_lost_are_counted(log: MailLog, tmp_path: Path, calls: FullCalls) -> None:
    log.write([("smtp", "one")])
    calls.full = True
    log.write([("smtp", "two"), ("smtp", "three")])
    log.write([("smtp", "four")])
    calls.full = False
    log.write([("smtp", "five")])
    log.write([("smtp", "six")])
    said = [line.split("]: ")[1] for line in lines(tmp_path)]
    assert said == ["one", "3 lines are missing here", "five", "six"]


def test_a_rotation_is_followed(log: MailLog, tmp_path: Path) -> None:
    log.write([("smtp", "old")])
    (tmp_path / "mail.log").rename(tmp_path / "mail.log.1")
    log.write([("smtp", "new")])
    assert [line.split("]: ")[1] for line in lines(tmp_path)] == ["new"]


def test_the_log_and_the_one_before_it_are_bounded(log: MailLog, tmp_path: Path) -> None:
    for number in range(100):
        log.write([("smtp", f"line {number}")])
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert len(sizes) == 2
    assert all(400 <= size < 500 for size in sizes[1:])
    assert sizes[0] < 500


def test_properties_of_strangers_are_no_ids_and_times() -> None:
    assert mail_id({"mail.id": "ab" * 24}, "x") == "ab" * 24
    for text in ("", "a b", "a\nb", "é"):
        assert mail_id({"mail.id": text}, "x") == "x"
    assert arrival_ns({"mail.arrival": "5"}, 7) == 5
    for text in ("", "-1", "x", "9" * 30, "٣"):
        assert arrival_ns({"mail.arrival": text}, 7) == 7
    assert delay_s({"mail.arrival": "9" * 19}, 7) == 0


def test_the_lines_of_a_batch_are_one_write(tmp_path: Path, calls: FullCalls) -> None:
    log = MailLog(tmp_path, "mx.here.test", 1 << 20)
    with log.together():
        for number in range(3):
            log.write([("smtp", f"a{number}: to=<a@b.test>")])
        seen = [calls.writes]
    seen.append(calls.writes)
    assert seen == [0, 1]
    log.write([("smtp", "b0: to=<a@b.test>")])
    log.close()
    told = (tmp_path / "mail.log").read_text().splitlines()
    assert [line.split("]: ")[1][:2] for line in told] == ["a0", "a1", "a2", "b0"]
