"""Programs of others that the tests speak with: Debian's own, started here on loopback.

Each is looked for in the system and in what `make setup-peers` unpacked; without it the test is
skipped and says which package has it. Each has its configuration in the test's folder, runs in the
foreground and is stopped by its pid.
"""

from __future__ import annotations

import glob
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.peers import software
from tests.bench.peers.processes import Server, free_port

_TIMEOUT_S = 60
_DOVECOT = """\
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/log
protocols = lmtp
ssl = no
auth_username_format = %Ln
default_internal_user = daemon
default_internal_group = daemon
default_login_user = nobody
mail_location = maildir:~/Maildir
first_valid_uid = 1
userdb {{
  driver = passwd-file
  args = {home}/users
}}
passdb {{
  driver = passwd-file
  args = {home}/users
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {port}
  }}
}}
"""


def found(path: str, package: str) -> Path:
    """A program by its place in Debian's tree; skips the test where it is not there."""
    for tree in (Path("/"), software.TREE):
        if places := sorted(glob.glob(str(tree / path))):
            return Path(places[-1])
    pytest.skip(f"{Path(path).name} is missing: apt-get install {package}")


def run(command: list[str | Path], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A client, to its end."""
    return subprocess.run([str(each) for each in command], env=software.environment(),
                          input=stdin, capture_output=True, text=True, check=False,
                          timeout=_TIMEOUT_S)


@contextmanager
def name_server(home: Path, *records: str) -> Iterator[int]:
    """dnsmasq with these records, as its options have them, and no other; its port."""
    program, port = found("usr/sbin/dnsmasq", "dnsmasq-base"), free_port()
    server = Server("dnsmasq", home)
    own = ["--user=root", "--group=root"] if os.geteuid() == 0 else []
    server.start([program, "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv",
                  "--no-hosts", "--bind-interfaces", "--listen-address=127.0.0.1",
                  f"--port={port}", "--pid-file", "--local=/test/", *own,
                  *(f"--{each}" for each in records)], software.environment())
    try:
        server.wait_port(port)
        yield port
    finally:
        server.stop()


@contextmanager
def dovecot(home: Path) -> Iterator[int]:
    """Dovecot's LMTP server with a user alice, whose mail lies in `home`/alice/Maildir; its port.
    Must be started as root."""
    program, port = Path("/usr/sbin/dovecot"), free_port()
    if not Path("/usr/lib/dovecot/lmtp").exists():  # it finds its parts nowhere else
        pytest.skip("dovecot is missing: apt-get install dovecot-lmtpd")
    for each in ("run", "state", "alice"):
        (home / each).mkdir()
    os.chown(home / "alice", 65534, 65534)
    (home / "users").write_text(f"alice:{{PLAIN}}x:65534:65534::{home}/alice::\n")
    (home / "conf").write_text(_DOVECOT.format(home=home, port=port))
    server = Server("dovecot", home)
    server.start([program, "-F", "-c", home / "conf"], software.environment())
    try:
        server.wait_port(port)
        yield port
    finally:
        server.stop()


@contextmanager
def sink(home: Path) -> Iterator[tuple[int, Server]]:
    """Postfix's smtp-sink, which counts what it takes; its port, and the process with its log."""
    program, port = found("usr/sbin/smtp-sink", "postfix"), free_port()
    server = Server("smtp-sink", home)
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    server.start([program, "-c", *user, f"127.0.0.1:{port}", "100"], software.environment())
    try:
        server.wait_port(port)
        yield port, server
    finally:
        server.stop()


_UNBOUND = """\
server:
  directory: "{home}"
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  logfile: ""
  verbosity: 1
  val-log-level: 2
  interface: 127.0.0.1
  port: {port}
  do-ip6: no
  num-threads: 1
  module-config: "validator iterator"
  local-zone: "test." nodefault
{anchor}remote-control:
  control-enable: no
auth-zone:
  name: "{name}"
  zonefile: "{home}/zone"
  for-downstream: no
  for-upstream: yes
"""


@contextmanager
def unbound(home: Path, name: str, zone: str, anchor: str) -> Iterator[int]:
    """A validating resolver that has this zone from a file, and verifies it all the same; its
    port. `anchor`: a DS record, or nothing: then the zone counts as not signed."""
    program, port = found("usr/sbin/unbound", "unbound"), free_port()
    (home / "zone").write_text(zone)
    line = f'  trust-anchor: "{anchor}"\n' if anchor else ""
    (home / "conf").write_text(_UNBOUND.format(home=home, port=port, name=name, anchor=line))
    server = Server("unbound", home)
    server.start([program, "-d", "-c", home / "conf"], software.environment())
    try:
        server.wait_port(port)
        yield port
    finally:
        server.stop()
