"""omq standby send and listen: a member of an instance as others reach it. A primary serves
standbys; who is none says what it is, and nothing else (services.standby.ask_members).

Errors: those of services.standby.primary and listener; NotPrimary of send.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from omq.base import side_files
from omq.base.config import load_settings
from omq.base.errors import Exit, NotPrimary, StreamBroken
from omq.base.event_log import EventLog, Level
from omq.cli.common import say
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.storage import spool


def send(location: Location, silence_s: float | None, name: str) -> int:
    """One standby, on standard input and output, until it hangs up."""
    from omq.services.standby.ask_members import answer_only
    from omq.services.standby.line import Line, Pipes
    from omq.services.standby.primary import Primary

    info = spool.open_spool(location.paths.root, writer=True, any_role=True)
    settings = load_settings(location.conf_dir)
    line = Line(Pipes(sys.stdin.fileno(), sys.stdout.fileno()), "the standby",
                settings.standby_silence_s if silence_s is None else silence_s)
    try:
        spool.refuse_others(info.paths, info.instance)
    except NotPrimary as error:
        with suppress(StreamBroken):  # nobody is there to be told
            answer_only(line, info.paths, info.instance, error)
        raise
    try:
        Primary(info.paths, info.instance, line, settings.pool_poll_ms / 1000,
                    sync=bool(settings.standby_sync), conf_dir=location.conf_dir).serve()
    except StreamBroken as error:
        # it hangs up, or is none: so each one ends
        say(name, f"{error.fields['peer']} is served no longer: {error.fields['reason']}")
    return Exit.OK


def listen(location: Location) -> int:
    """All of them over TLS, until a signal."""
    from omq.services.standby.listener import Listener

    info = spool.open_spool(location.paths.root, writer=True, any_role=True)
    settings = load_settings(location.conf_dir)
    log = EventLog("omq-standby-listen", info.paths.event_log, level=Level[settings.event_level],
                   stderr=True, bytes_max=settings.event_log_bytes_max)
    signals = Signals()
    signals.install()
    listener = Listener(info.paths, location.conf_dir, log, signals)
    try:
        listener.run(Notifier())
    finally:
        listener.close()
        side_files.retry()
        log.close()
    return Exit.OK
