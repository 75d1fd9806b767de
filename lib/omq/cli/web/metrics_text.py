"""The figures for Prometheus, for who has a token: one look in metrics_age_ms, whoever asks.

Errors: ExtraMissing: the client library is not installed.
"""

from __future__ import annotations

import threading
import time

from omq.base.errors import ExtraMissing
from omq.base.settings import Settings
from omq.services.daemon.options import Location


class MetricsText:
    """See the module. For worker threads."""

    def __init__(self, location: Location, settings: Settings) -> None:
        self._location, self._age_s = location, settings.metrics_age_ms / 1000
        self._lock = threading.Lock()
        self._until, self._text = float("-inf"), ""

    def text(self) -> str:
        """In the text format."""
        try:
            from omq.cli.watch import metrics  # an extra
        except ModuleNotFoundError as error:
            raise ExtraMissing(command="omq-web", package=error.name,
                               extra="omq-suite[metrics]") from error
        with self._lock:
            if time.monotonic() >= self._until:
                self._text = metrics.text(self._location)
                self._until = time.monotonic() + self._age_s
            return self._text
