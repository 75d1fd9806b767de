"""The conf directory of the demo's instance: the shipped files with the few settings it needs.

Only what must differ from a real host is set: ports, short pauses (a demo of seconds cannot wait
for the minutes that suit a mail host), small journal files and frequent checkpoints (so that a
short run rotates, retires and checkpoints as a long one does), and the demo's domain.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from configparser import RawConfigParser
from pathlib import Path

from tests.demo.mails import LOCAL_DOMAIN, LOCAL_USERS, REMOTE_DOMAINS

# Auxiliary readers of each service, besides its main reader.
AUXILIARIES = {"router": 2, "local": 2, "unix": 1}
# A message whose reader was killed must come back within the demo, not after half a minute.
_DEATH_DELAY_S = 2

_Sections = Mapping[str, Mapping[str, object]]


def write_conf(conf: Path, shipped: Path, sink_port: int, slow_port: int = 0) -> None:
    """Make the directory `conf`; what is not written here is read from the shipped files.
    `slow_port`: of the slow peer, 0: there is none."""
    conf.mkdir(parents=True, exist_ok=True)
    _write(conf / "omq.conf", {}, _settings(sink_port))
    services = {name: {"auxiliaries": count} for name, count in AUXILIARIES.items()}
    _write(conf / "services.conf", _read(shipped / "services.conf"), services)
    _write(conf / "routes.conf", _read(shipped / "routes.conf"), _routes(slow_port or sink_port))
    queues = {"*": {"death_delay_s": _DEATH_DELAY_S}}
    _write(conf / "queues.conf", _read(shipped / "queues.conf"), queues)


def _settings(sink_port: int) -> _Sections:
    return {
        "journal": {"journal_file_bytes": "16 MiB"},
        "pool": {"checkpoint_interval_s": 2},
        "daemons": {"restart_backoff_min_s": 0},
        "mail": {
            "hostname": f"mail.{LOCAL_DOMAIN}",
            "postmaster": f"postmaster@{LOCAL_DOMAIN}",
            "smtp_listen_port": _free_port(),
            "local_retry_s": 1,
            "unix_smarthost": f"127.0.0.1:{sink_port}",
            "unix_retry_step_s": 1,
            "unix_retry_max_s": 2,
        },
    }


def _free_port() -> int:
    """A port of one's own, so that smtp.server comes back where it was when it is killed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _routes(peer_port: int) -> _Sections:
    # One domain has a peer of its own, the slow one, the others go to the smarthost.
    return {
        "local": {"domains": LOCAL_DOMAIN, "users": ", ".join(LOCAL_USERS)},
        "peers": {REMOTE_DOMAINS[0]: f"127.0.0.1:{peer_port}"},
    }


def _read(path: Path) -> RawConfigParser:
    parser = _parser()
    with path.open(encoding="utf-8") as stream:
        parser.read_file(stream)
    return parser


def _write(path: Path, base: _Sections | RawConfigParser, changes: _Sections) -> None:
    parser = _parser()
    for sections in (base, changes):
        for section, keys in sections.items():
            for key, value in keys.items():
                if not parser.has_section(section):
                    parser.add_section(section)
                parser.set(section, key, str(value))
    with path.open("w", encoding="utf-8") as stream:
        stream.write("# written by the demo; keys and their meaning: see the shipped conf files\n")
        parser.write(stream)


def _parser() -> RawConfigParser:
    # No default section: [*] is a section like any other here.
    return RawConfigParser(delimiters=("=",), comment_prefixes=("#",), default_section="\0")
