"""The carrier of the maildrop: what is refused rests, the others go on; a manager that is away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from omq import Outgoing
from omq.base.errors import ManagerUnavailable, MessageTooLong
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.rated_log import RatedLog
from omq.base.settings import Settings
from omq.services.mail.drop_carrier import Carrier
from omq.services.mail.drop_file import Dropped
from omq.services.mail.mail_log import MailLog
from omq.services.mail.maildrop import Maildrop
from tests.waiting import until

SETTINGS = Settings(disk_reserve_bytes=0, inode_reserve=0, reader_refused_retry_s=3600)


class Manager:
    """Refuses what is large; `away`: connects to nobody."""

    def __init__(self) -> None:
        self.put: list[bytes] = []
        self.tries: list[int] = []
        self.away = False
        self.asked = 0

    def connect(self) -> Manager:
        self.asked += 1
        if self.away:
            raise ManagerUnavailable(spool="x", reason="it is away")
        return self

    def put_many(self, queue: str, messages: Sequence[Outgoing]) -> list[str]:
        assert queue == "ROUTER" and all(each.persistent for each in messages)
        self.tries += [len(each.body) for each in messages]
        if any(len(each.body) > 100 for each in messages):
            raise MessageTooLong(size=101, queue=queue, limit=100)
        self.put += [each.given_id for each in messages]
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Maildrop, Manager, Callable[[], Carrier]]]:
    paths = SpoolPaths(tmp_path)
    for folder in (paths.logs, paths.quarantine):
        folder.mkdir()
    log = EventLog("mail.drop", paths.event_log, stderr=False)
    mail_log = MailLog(paths.logs, "mx.test", 1 << 20)
    drop, manager = Maildrop(paths, SETTINGS, lambda name, reason: None), Manager()
    made: list[Carrier] = []

    def start() -> Carrier:
        made.append(Carrier(drop, manager.connect, log, RatedLog(log, 10, 60),
                            mail_log, ended.set))
        made[-1].start()
        return made[-1]

    ended = threading.Event()
    yield drop, manager, start
    for each in made:
        each.stop(60)
        assert ended.wait(60) and each.failure is None
    mail_log.close()
    drop.close()
    log.close()


def dropped(number: int, size: int = 10) -> Dropped:
    return Dropped(f"{number:048x}", 1, number, 4, {"mail.from": "s@x"}, b"x" * size)


def test_what_is_refused_rests_and_the_others_go_on(
        world: tuple[Maildrop, Manager, Callable[[], Carrier]]) -> None:
    drop, manager, start = world
    for number, size in ((1, 10), (2, 101), (3, 10)):
        drop.keep(dropped(number, size))
    carrier = start()
    until(lambda: len(drop) == 1)
    drop.keep(dropped(4))
    carrier.wake()
    until(lambda: len(drop) == 1 and len(manager.put) == 3)
    assert manager.put == [bytes.fromhex(f"{number:048x}") for number in (1, 3, 4)]
    assert manager.tries.count(101) == 2, "with the others, then alone; not again before its time"


def test_a_manager_that_is_away_is_not_asked_for_each_mail(
        world: tuple[Maildrop, Manager, Callable[[], Carrier]]) -> None:
    drop, manager, start = world
    manager.away = True
    drop.keep(dropped(1))
    carrier = start()
    until(lambda: manager.asked)
    for number in range(2, 50):
        drop.keep(dropped(number))
        carrier.wake()
    assert manager.asked < 10 and len(drop) == 49
    manager.away = False
    until(lambda: not len(drop))
    assert manager.put == [bytes.fromhex(f"{number:048x}") for number in range(1, 50)]
