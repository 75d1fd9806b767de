"""`omq ship run`: ships until a signal. Each `ship_interval_ms` what has become durable goes as
objects; a base is made when there is none, and every `ship_base_hours`, between the objects; then
what is older than `ship_bases_kept` bases goes.

A place that is away is asked again, after a pause that grows to half a minute; the journal here is
kept meanwhile (`standby_files_kept`). run/ship.json says how it is, once a second: what is shipped,
for how long the oldest of what is not has waited (null: no queue manager has said yet how far the
journal is durable) and its bytes, the last object, since when the place is away, the last error
(omq.services.ship.shown).

Errors: Superseded, ForeignPlace, PlaceEmpty, PlaceDamaged, DiskError end it; with `once`
ManagerUnavailable, too.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from omq.base import clock, modes, side_files
from omq.base.clock import NS_PER_S
from omq.base.errors import ManagerUnavailable, PlaceUnavailable, StreamBroken
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.format.index import Counter
from omq.services.daemon.signals import Signals
from omq.services.pool.durable_look import DurableLook
from omq.services.ship.bases import prune
from omq.services.ship.places import Place
from omq.services.ship.shipping import Shipping
from omq.services.standby.lag import Lag
from omq.storage.instance_file import Instance

PAUSE_S: Final = (0.5, 30.0)  # after an error of the place: the first one, the longest
_HOUR_S: Final = 3600
_TELL_S: Final = 1.0


class Runner:
    """See the module."""

    def __init__(self, paths: SpoolPaths, instance: Instance, settings: Settings, place: Place,
                 signals: Signals, say: Callable[[str], None], *, anew: bool = False) -> None:
        self._paths, self._settings, self._signals, self._say = paths, settings, signals, say
        self._place, self._url, self._term = place, place.url, instance.term
        self.shipping = Shipping(paths, instance, place, anew=anew)
        self._look = DurableLook(paths)
        self._base: Iterator[None] | None = None
        self._begun = False
        self._looked = 0
        self._whole_at = time.monotonic()  # when all that was durable then was shipped
        self._lag = Lag()  # in bytes
        self._away_at: float | None = None  # since when the place does not answer
        self._pause_s = PAUSE_S[0]
        self._tell_at = 0.0
        self.error = ""

    def run(self, *, once: bool = False) -> None:
        """Until a signal; `once`: until all is shipped and there is a base."""
        try:
            while not self._signals.stopping:
                if self._turn():
                    continue
                if once and self._begun and self._look.index is None:
                    raise ManagerUnavailable(spool=self._paths.root, reason="how far the journal "
                                             "is durable is not known without it")
                if once and not self.error and not self.shipping.needs_base and (
                        self._base is None):
                    return
                self._signals.wait(self._settings.ship_interval_ms / 1000 if not self.error
                                   else self._pause_s)
        finally:
            self._tell(force=True)
            self.shipping.close()
            self._look.close()

    def _turn(self) -> bool:
        """One step; is there more to do at once?"""
        try:
            if not self._begun:
                self.shipping.start()
                self._begun = True
            more = self._ship() or self._make_base()
        except (PlaceUnavailable, StreamBroken) as error:
            self._base = None
            self._pause_s = min(2 * self._pause_s, PAUSE_S[1]) if self.error else PAUSE_S[0]
            if str(error) != self.error:
                self._say(f"{error}; trying again")
            self.error, more = str(error), False
            if isinstance(error, PlaceUnavailable) and self._away_at is None:
                self._away_at = time.monotonic()
        else:
            self.error, self._away_at = "", None
        self._note_lag()
        self._tell()
        return more

    def _ship(self) -> bool:
        now, durable = time.monotonic(), self._look.look()
        more = self.shipping.turn(durable)
        if self.shipping.state.lsn >= self._looked and not self.shipping.needs_base:
            self._whole_at, self._looked = now, durable
        return more

    def _note_lag(self) -> None:
        index, shipped = self._look.index, self.shipping.state.lsn
        if index is not None and self._begun and not self.shipping.needs_base:
            self._lag.note(self._look.lsn, shipped, index.counter(Counter.JOURNAL_BYTES))

    def _make_base(self) -> bool:
        """The next step of a base; False: none is being made."""
        index = self._look.index
        if self._base is None:
            if index is None or not self._due():
                return False
            self._base = self.shipping.base(lambda: index.running, clock.wall_ns())
        if next(self._base, self) is self:
            self._base = None
            prune(self._place, self._settings.ship_bases_kept)
        return True

    def _due(self) -> bool:
        if self.shipping.needs_base or not self.shipping.state.base_time_ns:
            return True
        age_ns = clock.wall_ns() - self.shipping.state.base_time_ns
        hours = self._settings.ship_base_hours
        # A clock that was set back makes no base older than it is, nor for ever young.
        return bool(hours) and not 0 <= age_ns < hours * _HOUR_S * NS_PER_S

    def state(self) -> dict[str, Any]:
        """As run/ship.json has it."""
        found, durable, now = self.shipping.state, self._look.lsn, time.monotonic()
        waits = durable > found.lsn or bool(self.shipping.needs_base)
        return {"pid": os.getpid(), "url": self._url, "term": self._term, "shipped_lsn": found.lsn,
                "durable_lsn": durable if self._look.known else None,
                "waits_s": None if not self._look.known else
                max(0.1, round(now - self._whole_at, 1)) if waits else 0.0,
                "waits_bytes": None if self.shipping.needs_base else self._lag.bytes,
                "last_object": found.last_object,
                "away_s": 0.0 if self._away_at is None else round(now - self._away_at, 1),
                "objects": found.objects, "bytes": found.bytes, "base_lsn": found.base_lsn,
                "base_time_ns": found.base_time_ns, "needs_base": self.shipping.needs_base,
                "error": self.error, "time_ns": clock.wall_ns()}

    def _tell(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if force or now >= self._tell_at:
            self._tell_at = now + _TELL_S
            side_files.replace(self._paths.ship,
                               (json.dumps(self.state(), sort_keys=True) + "\n").encode(),
                               modes.PUBLIC)
