"""The result backend of Celery: result_backend = "omq:///var/lib/orders", "omq+omq://INSTANCE".

Results lie on the queue `queue` (CELERY.RESULTS) of result_backend_transport_options, expire after
result_expires, and are as safe as tasks. `get` of an AsyncResult is woken by its result's arrival.

A chord is watched by a task (chord_unlock), not counted: a count would be wrong by a part that a
killed worker did twice.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import TimeoutError as ResultTimeout

from omq.tasks.natives import CONNECTION_ERRORS, TIMEOUT_S, Natives
from omq.tasks.results import Results

QUEUE: Final = "CELERY.RESULTS"


class OmqBackend(KeyValueStoreBackend):
    """See the module."""

    supports_autoexpire = True
    supports_native_join = False
    implements_incr = False

    def __init__(self, app: Any, url: str | None = None, **said: Any) -> None:
        super().__init__(app, url=url, **said)
        options = app.conf.get("result_backend_transport_options") or {}
        self._natives = Natives(url or "omq://", "celery",
                                float(options.get("timeout_s", TIMEOUT_S)))
        self._storing = threading.local()
        self._results = Results(self._natives, str(options.get("queue", QUEUE)))

    def get(self, key: Any) -> bytes | None:
        return self._results.get(key, once=getattr(self._storing, "now", False))

    def mget(self, keys: Any) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def set(self, key: Any, value: Any) -> None:
        self._results.set(key, value.encode() if isinstance(value, str) else value,
                          self.expires or None)

    def _store_result(self, *said: Any, **named: Any) -> Any:
        """It looks for an older state first, which most often is not there."""
        self._storing.now = True
        try:
            return super()._store_result(*said, **named)
        finally:
            self._storing.now = False

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """With result_backend_always_retry a manager that is away is asked again."""
        return isinstance(exc, CONNECTION_ERRORS)

    def delete(self, key: Any) -> None:
        self._results.delete(key)

    def wait_for(self, task_id: str, timeout: float | None = None, interval: float = 0.5,
                 no_ack: bool = True, on_interval: Any = None) -> Any:  # noqa: FBT001, FBT002 (celery's)
        """As Celery's own, but what waits for a first state waits in the manager."""
        self._ensure_not_eager()
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            meta = self.get_task_meta(task_id)
            if meta["status"] in states.READY_STATES:
                return meta
            if on_interval:
                on_interval()
            left = interval if ends is None else min(interval, ends - time.monotonic())
            if left <= 0:
                raise ResultTimeout("The operation timed out.")
            if meta["status"] == states.PENDING:
                self._results.get(self.get_key_for_task(task_id), wait_s=left)
            else:
                time.sleep(left)

    def cleanup(self) -> None:
        """Nothing: results expire by themselves."""

    def close(self) -> None:
        self._results.close()
        self._natives.close()

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})
