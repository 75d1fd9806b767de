"""The manager's end of the request queue: waits in one place, then takes all that is there.

A signal ends the wait with an empty batch. If somebody removes the queue (ipcrm), IpcRemoved: the
manager ends and the next one makes a new queue, to which the clients come by themselves.
"""

from __future__ import annotations

import sysv_ipc

from omq.base.errors import IpcRemoved
from omq.format.wire import REQUEST_TYPE


class Requests:
    """The request queue, taken in batches."""

    def __init__(self, queue: sysv_ipc.MessageQueue) -> None:
        self.queue = queue
        self._receive = queue.receive

    def take(self, limit: int) -> list[bytes]:
        """Wait for one request or wake-up, then take all that are there, up to `limit`."""
        out: list[bytes] = []
        receive, add = self._receive, out.append
        try:
            first, kind = receive(block=True)
            if kind == REQUEST_TYPE:
                add(first)
            while len(out) < limit:
                raw, kind = receive(block=False)
                if kind == REQUEST_TYPE:
                    add(raw)
        except sysv_ipc.BusyError:
            pass
        except sysv_ipc.ExistentialError as error:
            raise IpcRemoved(what="message queue", id=self.queue.id) from error
        except sysv_ipc.Error:  # a signal
            pass
        return out
