"""The next journal file of a standby, made by a thread: zeros of a whole file take longer than a
client of the primary should wait for an acknowledgement.

The thread does nothing else, and nobody else makes that file: who begins a file waits for it first
(`wait`). A disk that has no room for it need not stop it: there is room in the file that is
open, and who begins the next one says so. `begin` tries again.

In the middle of a crash: the file is made under a temporary name (storage.files.create_filled).

Errors of `wait`: DiskError, whatever else the thread met; not SpoolFull.
"""

from __future__ import annotations

import threading

from omq.base.errors import SpoolFull
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.storage.journal import prepare_next


class Preparing:
    """See the module."""

    def __init__(self, paths: SpoolPaths, settings: Settings) -> None:
        self._paths, self._settings = paths, settings
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def begin(self) -> None:
        """Make it, unless it is being made."""
        if self._thread is not None and self._thread.is_alive():
            return
        self.wait()
        self._thread = threading.Thread(target=self._run, name="next journal file", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            prepare_next(self._paths, self._settings)
        except SpoolFull:
            return  # see the module
        except Exception as error:
            self._failure = error

    def wait(self) -> None:
        """Until none is being made."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
