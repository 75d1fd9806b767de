"""The keys of section [standby] of omq.conf: where the standbys of this instance reach it over TLS,
and how it reaches them (STANDBY.md); see omq.base.settings, whose base this is. Certificates are
those of [amqp] and [channel]."""

from __future__ import annotations

from omq.base.settings_key import choice, flag, number, part, text
from omq.base.settings_watch import WatchSettings

_PATH = r"[ -~]{0,1000}"
_HOST = r"[A-Za-z0-9.:_-]{1,255}"


@part
class StandbySettings(WatchSettings):
    """One field per key of [standby]."""

    # fmt: off
    standby_listen_host: str = text("standby", "127.0.0.1", _HOST, "a host name or address",
        "address on which `omq standby listen` serves standbys, over TLS alone")
    standby_listen_port: int = number("standby", 9817, 0, 65535,
        "its port; 0: any free one (in run/, for tests)")
    standby_silence_s: int = number("standby", 60, 5, 3600,
        "a standby that takes nothing, or sends nothing, this long is disconnected; it "
        "connects again")
    standby_sync: int = number("standby", 0, 0, 15,
        "standbys that must have a change on their disks before it is acknowledged; 0: nothing "
        "waits for standbys")
    standby_lost: str = choice("standby", "wait", ("wait", "go_on"),
        "what to do when fewer than standby_sync answer: wait until they do, or go on alone")
    standby_lost_s: int = number("standby", 10, 1, 3600,
        "with go_on: how long a reply waits before the queue manager goes on alone")
    standby_members: str = text("standby", "", r"[ -~]{0,1000}", "tls://HOST[:PORT], or commands "
        "that run 'omq standby send', with commas between them",
        "how the other members of the instance are reached: a queue manager asks them at its "
        "start, and does not serve where one knows a later term")
    standby_start_alone: bool = flag("standby",
        "may a queue manager serve though one of standby_members does not answer? `no`: it ends "
        "until all of them do", default=True)
    standby_lease: str = text("standby", "", r"[!-~ ]{0,1000}", "https://HOST:PORT, with commas "
        "between them",
        "members of an etcd that decides who is primary (`omq standby keep`); empty: people do")
    standby_lease_s: int = number("standby", 10, 2, 300,
        "how long a primary that cannot reach etcd goes on; then it acknowledges nothing, and "
        "another member may be promoted")
    standby_hung_s: int = number("standby", 20, 5, 3600,
        "with a lease: when the queue manager has hung this long, the lease is left to "
        "run out, and another member may be promoted")
    standby_lease_prefix: str = text("standby", "omq", r"[A-Za-z0-9/_.-]{1,100}",
        "a prefix of keys",
        "keys in etcd are PREFIX/UUID/...")
    standby_lease_ca_file: str = text("standby", "", _PATH, "a PEM file",
        "authorities of etcd's certificates; empty: those of the system")
    standby_lease_certificate: str = text("standby", "", _PATH, "a PEM file",
        "certificate and key of this host, for an etcd that wants one")
    standby_lease_user: str = text("standby", "", r"[!-~]{0,100}", "a user of etcd",
        "user of etcd; empty: none")
    standby_lease_password_file: str = text("standby", "", _PATH, "a file",
        "its password, one line; readable for the spool's user alone")
    standby_address: str = text("standby", "", r"(tls://[A-Za-z0-9.:\[\]_-]{1,260})?",
        "tls://HOST[:PORT]",
        "how other members reach this one, noted in etcd: standbys follow it there after a "
        "failover")
    standby_rejoin: bool = flag("standby",
        "does a former primary follow the new one by itself, where that needs no copy?",
        default=True)
    # fmt: on
