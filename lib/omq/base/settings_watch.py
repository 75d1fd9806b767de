"""The keys of section [metrics] of omq.conf: figures and alarms; see omq.base.settings, whose base
this is.
"""

from __future__ import annotations

from typing import Final

from omq.base.settings_key import number, part, text

_HOST: Final = r"[A-Za-z0-9.:_-]{1,255}"
_HOST_RULE: Final = "a host name or address"


@part
class WatchSettings:
    """One field per key."""

    # fmt: off
    metrics_listen_host: str = text("metrics", "127.0.0.1", _HOST, _HOST_RULE,
        "address that omq-metrics listens on; loopback, since it has no login")
    metrics_listen_port: int = number("metrics", 9815, 0, 65535,
        "its port; 0: any free one (in run/, for tests)")
    metrics_connections_max: int = number("metrics", 16, 1, 1000,
        "scrapes at once; one more is closed, for each has a thread")
    metrics_timeout_s: int = number("metrics", 10, 1, 600,
        "a connection that has not asked, or not taken its answer, by then is closed")
    metrics_age_ms: int = number("metrics", 500, 0, 60_000,
        "an answer up to this old is given again: many scrapes at once cost one look")
    alarms_period_s: int = number("metrics", 10, 1, 3600,
        "how often omq health --watch looks")
    alarms_run_timeout_s: int = number("metrics", 10, 1, 600,
        "a program that tells of an alarm is killed after it: the others wait meanwhile")
    alarms_sendmail: str = text("metrics", "/usr/sbin/sendmail", r"/\S+", "an absolute path",
        "program that mail of an alarm is given to: address as argument, text on stdin")
    # fmt: on
