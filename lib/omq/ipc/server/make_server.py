"""The request server of a manager, in the form that OMQ_FAST chooses (omq.base.form)."""

from __future__ import annotations

from collections.abc import Callable

from omq.base import form
from omq.core.engine.engine import Engine
from omq.ipc.server.request_server import RequestServer
from omq.ipc.server.sessions import Sessions
from omq.ipc.server.units import UnitLimits
from omq.storage.payloads import PayloadReader


def make_server(engine: Engine, sessions: Sessions, bodies: PayloadReader, epoch: int,
                relocate: Callable[[memoryview], int], batch_max: int, units: UnitLimits
                ) -> tuple[RequestServer, str]:
    """The server, and why it is not compiled though it should be (empty: it is as it should be).
    ConfigError: OMQ_FAST is none of the choices."""
    if form.wanted() == form.OFF:
        return RequestServer(engine, sessions, bodies, epoch, relocate, batch_max, units), ""
    from omq.fast import FORM, PROBLEM  # neither loaded nor compiled where it is off
    from omq.ipc.server.fast_server import FastServer

    server = FastServer(engine, sessions, bodies, epoch, relocate, batch_max, units, FORM)
    return server, PROBLEM
