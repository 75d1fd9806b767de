"""omq peers --tls: of each peer the last line that TLS was wanted for, and its certificate.

What the gateways noted (logs/unix.tls.jsonl and the file before it) is read to its end; the last
row of a host and port counts. What a peer says of itself is shown escaped.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from omq.base import clock
from omq.base.names import escape
from omq.cli.common import print_json, say
from omq.services.mail.tls_sessions import Gaps, read_sessions

if TYPE_CHECKING:
    from omq.base.services_conf import ServiceConf
    from omq.services.daemon.options import Location

_SHOWN: Final = 1000


def show_tls(location: Location, conf: ServiceConf, *, json_lines: bool) -> None:
    """A row a peer, the one that was spoken to last first."""
    gaps = Gaps()
    rows = last_of_peers(location, conf, gaps)
    if short := gaps.sentence():
        say("omq peers", f"a peer's last line may be missing: {short}")
    if json_lines:
        for row in rows:
            print_json(row)
        return
    write = sys.stdout.write
    write(f"{'peer':<32} {'last':<20} {'level':<8} {'TLS':<8} what came of it\n")
    for number, row in enumerate(rows):
        if number == _SHOWN:
            write("...\n")
            break
        when = datetime.fromtimestamp(row["time_ns"] / clock.NS_PER_S, UTC)
        said = f"{row['result']}: {row['reason']}" if row["result"] else "well"
        write(f"{escape(row['peer']):<32} {when:%Y-%m-%dT%H:%M:%SZ} {escape(row['level']):<8} "
              f"{escape(row['version']) or 'none':<8} {escape(said)}\n")
        seen = row["certificate"]
        if seen:
            write(f"    certificate {escape(seen.get('subject', '') or '(no name)')}, by "
                  f"{escape(seen.get('issuer', '') or '?')}, until {escape(seen.get('until', '?'))}"
                  f"\n    SHA-256 {escape(seen.get('sha256', '?'))}\n")


def last_of_peers(location: Location, conf: ServiceConf, gaps: Gaps | None = None
                  ) -> list[dict[str, Any]]:
    """As JSON has them."""
    last: dict[str, dict[str, Any]] = {}
    for row in read_sessions(location.paths.logs, conf.name, gaps):
        if row["host"]:
            peer = f"[{row['host']}]" if ":" in row["host"] else row["host"]
            peer = f"{peer}:{row['port']}"
            last.pop(peer, None)
            last[peer] = {"service": conf.name, "peer": peer} | {
                key: row[key] for key in ("time_ns", "level", "policy", "result", "reason",
                                          "version", "cipher", "certificate", "domains")}
    for row in last.values():
        row["certificate"] = {str(key): str(text) for key, text in row["certificate"].items()}
    return list(last.values())[::-1]
