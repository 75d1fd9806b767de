"""From the maildrop to ROUTER: a thread of mail.drop with a connection to the queue manager.

Rules: 1. files go in the order of arrival, several in one request; 2. a file is removed after the
manager acknowledged its message, whose id is the mail's; 3. what ROUTER refuses (full, inhibited,
too long) stays, is logged (DROP_WAITS) and tried again after `reader_refused_retry_s`; the others
go on; 4. while there is no manager nothing is lost and nothing is asked of anybody: it is tried
again after a second, then ever more seldom up to half a minute.

Crash argument: that of mail.maildrop. A thread that is abandoned at a stop was between two of these
steps, as after a death.

Errors: none leave the thread but DiskError, which ends the daemon (`failure`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from omq import Outgoing
from omq.base import events, fault, limits
from omq.base.errors import DiskError, OmqError
from omq.base.event_log import WARNING, EventLog
from omq.base.names import ROUTER
from omq.base.rated_log import RatedLog
from omq.services.mail import mail_message as mail
from omq.services.mail.drop_file import Dropped
from omq.services.mail.mail_log import MailLog, made_lines
from omq.services.mail.maildrop import Maildrop
from omq.services.mail.smtp_intake import BATCH_MESSAGE_BYTES_MAX, Connection
from omq.services.mail.smtp_refusals import REFUSALS

_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 30.0
_MESSAGE_ID: Final = frozenset((b"message-id",))


class Carrier:
    """`start`, `wake` when a file is there, `stop`. `ended` is called if it ends by itself."""

    def __init__(self, drop: Maildrop, connect: Callable[[], Connection], log: EventLog,
                 rated: RatedLog, mail_log: MailLog, ended: Callable[[], None]) -> None:
        self._drop, self._connect, self._log, self._rated = drop, connect, log, rated
        self._mail_log, self._ended = mail_log, ended
        self._connection: Connection | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._rests: dict[str, float] = {}  # until when, monotonic s
        self.failure: BaseException | None = None
        self._away = False
        # A put that waits for a manager must not hold up the end of the process.
        self._thread = threading.Thread(target=self._run, name="carrier", daemon=True)

    def start(self) -> None:
        """Begin with what is there."""
        self._thread.start()

    def wake(self) -> None:
        """A file is there."""
        self._wake.set()

    def stop(self, patience_s: float) -> None:
        """Let a request under way end."""
        self._stopping = True
        self._wake.set()
        self._thread.join(patience_s)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # its owner raises it
            self.failure = error
        finally:
            self._disconnect()
            self._ended()

    def _work(self) -> None:
        pause_s = _PAUSE_S
        while not self._stopping:
            self._wake.clear()
            try:
                while not self._stopping and self._carry():
                    pause_s = _PAUSE_S
                wait_s = self._rest_s()
            except DiskError:
                raise
            except OmqError as error:
                self._disconnect()
                if not self._away:
                    self._log.event(events.DROP_AWAY, WARNING, reason=str(error),
                                    waiting=len(self._drop))
                self._away = True
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
                continue
            self._wake.wait(wait_s)

    def _sleep(self, seconds: float) -> None:
        """Whatever comes meanwhile: only a stop ends it."""
        ends = time.monotonic() + seconds
        while not self._stopping and (left := ends - time.monotonic()) > 0:
            self._wake.clear()
            self._wake.wait(left)

    def _rest_s(self) -> float | None:
        """Until the first of those that rest may be tried."""
        if not self._rests:
            return None
        return max(0.0, min(self._rests.values()) - time.monotonic())

    def _carry(self) -> bool:
        """One request; False: nothing is to be carried now."""
        now = time.monotonic()
        there = self._drop.names()
        self._rests = {name: until for name, until in self._rests.items()
                       if until > now and name in set(there)} if self._rests else {}
        batch = self._batch([name for name in there if name not in self._rests])
        if not batch:
            return False
        self._put(batch)
        return True

    def _batch(self, names: Sequence[str]) -> list[Dropped]:
        """What fits into one request. DiskError."""
        settings = self._drop.settings
        room, batch = settings.channel_bytes // 2, list[Dropped]()
        for name in names:
            found = self._drop.read(name)
            if found is None:
                continue
            need = len(found.body) + limits.KIB + sum(map(len, found.properties.values()))
            alone = need > BATCH_MESSAGE_BYTES_MAX
            if batch and (alone or need > room):
                break
            batch.append(found)
            room -= need
            if alone or len(batch) >= settings.smtp_batch_messages_max:
                break
        return batch

    def _put(self, batch: list[Dropped]) -> None:
        """Put them and remove their files; of what is refused each by itself."""
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.put_many(ROUTER, [_message(each) for each in batch])
        except REFUSALS as error:
            if len(batch) == 1:
                self._refused(batch[0], error)
                return
            for each in batch:
                self._put([each])
            return
        fault.point("drop.after_put")
        self._away = False
        self._drop.done([each.name for each in batch])
        for each in batch:
            self._mail_log.write(made_lines(
                each.mail_id, _field(each.body, self._drop.settings.mail_header_scan_bytes),
                len(each.body), each.properties.get(mail.FROM, ""),
                len(mail.lines(each.properties.get(mail.TO, "")))))

    def _refused(self, mail_: Dropped, error: OmqError) -> None:
        pause_s = self._drop.settings.reader_refused_retry_s
        self._rests[mail_.name] = time.monotonic() + pause_s
        self._rated.event(events.DROP_WAITS, WARNING, mail_.mail_id, mail_id=mail_.mail_id,
                          reason=str(error), retry_s=pause_s)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OmqError, OSError):  # it is given up because it does not work
                connection.close()


def _message(each: Dropped) -> Outgoing:
    return Outgoing(each.body, queues=(ROUTER,), priority=each.priority, persistent=True,
                    properties=each.properties, message_id=bytes.fromhex(each.mail_id))


def _field(body: bytes, scan_bytes: int) -> str:
    """Message-ID."""
    found = mail.field_values(body, _MESSAGE_ID, mail.header_fields(body, scan_bytes))
    return found[0][1] if found else ""
