"""A standby over TLS: who is let in and who is not, reconnection, revoked rights, and the units."""

from __future__ import annotations

import json
import pwd
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from omq.base.errors import Exit, StreamBroken
from omq.format.standby import Piece, PieceKind
from omq.services.standby.line import Line, Secured
from omq.storage.spool import open_spool
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S
from tests.process.test_standby import OMQ, Pair, client
from tests.waiting import until

ACCOUNT = next(each.pw_name for each in pwd.getpwall() if each.pw_uid not in (0, 65534))
OTHER = next(each.pw_name for each in pwd.getpwall()
             if each.pw_uid not in (0, 65534) and each.pw_name != ACCOUNT)


class TlsPair(Pair):
    """The standby reaches its primary over TLS; certificates lie in `folder`."""

    def __init__(self, primary: world.Instance, root: Path, folder: Path) -> None:
        super().__init__(primary, root)
        self.folder, self.ca = folder, trustme.CA()
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        self.issue("localhost", "own.pem")
        self.shows(ACCOUNT)
        self.listener: subprocess.Popen[bytes] | None = None
        self.listener_log = root.with_name("listener.log")
        with open(primary.conf / "omq.conf", "a", encoding="utf-8") as conf:
            conf.write(f"\n[amqp]\namqp_tls_certificate = {folder}/own.pem\n"
                       f"amqp_tls_ca_file = {folder}/ca.pem\n"
                       f"[channel]\nchannel_tls_ca_file = {folder}/ca.pem\n"
                       f"channel_tls_certificate = {folder}/standby.pem\n"
                       "[standby]\nstandby_listen_port = 0\n")
        self.lets(ACCOUNT)

    def issue(self, name: str, file: str, *, user: str | None = None,
              ca: trustme.CA | None = None) -> Path:
        made = (ca or self.ca).issue_cert(name, common_name=user)
        path = self.folder / file
        path.write_bytes(made.private_key_pem.bytes() + made.cert_chain_pems[0].bytes())
        path.chmod(0o600)
        return path

    def shows(self, user: str, ca: trustme.CA | None = None) -> None:
        self.issue("client", "standby.pem", user=user, ca=ca)

    def lets(self, *users: str) -> None:
        (self.primary.conf / "authority.conf").write_text(
            "[standby]\n" + "".join(f"user:{each} = follow\n" for each in users))

    def listen(self) -> None:
        with open(self.listener_log, "ab") as log:
            self.listener = subprocess.Popen(
                [*OMQ, "standby", "listen", "--spool", str(self.primary.root), "--conf",
                 str(self.primary.conf)], stderr=log)
        self.children.append(self.listener)
        until(self.primary.paths.standby_port.exists, self.listened)

    def listened(self) -> str:
        return self.listener_log.read_text()

    @property
    def port(self) -> int:
        return int(self.primary.paths.standby_port.read_text().split()[1])

    @property
    def send(self) -> list[str]:
        return [f"tls://localhost:{self.port}"]

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        made.load_cert_chain(self.folder / "standby.pem")
        return made


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[TlsPair]:
    made = TlsPair(omq_instance, tmp_path / "standby", tmp_path)
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    made.listen()
    yield made
    made.end()


def test_it_follows_over_tls_comes_again_and_takes_over(pair: TlsPair) -> None:
    with client(pair) as c:
        c.put("A", b"before")
        pair.make()
        follower = pair.follow()
        c.put("A", b"large" * 200_000)  # several records of TLS, more than one read takes
        pair.caught_up()
        assert pair.listener is not None
        port = pair.port
        pair.listener.kill()
        pair.listener.wait()
        c.put("A", b"while it was cut")
        until(lambda: not pair.status()["following"], pair.log.read_text)
        conf = pair.primary.conf / "omq.conf"
        conf.write_text(conf.read_text().replace("listen_port = 0", f"listen_port = {port}"))
        pair.primary.paths.standby_port.unlink()
        pair.listen()
        pair.caught_up()
    refused = pair.run("promote")
    assert refused.returncode == Exit.TEMPORARY and "is locked" in refused.stderr
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    refused = pair.run("promote")
    assert refused.returncode == Exit.TEMPORARY and "the primary answers" in refused.stderr
    pair.listener.send_signal(signal.SIGTERM)
    assert pair.listener.wait(WAIT_S) == 0, pair.listened()
    assert not pair.primary.paths.standby_port.exists()
    pair.primary.kill(MANAGER, WRITER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    assert pair.run("promote").returncode == 0
    assert pair.bodies() == [b"before", b"large" * 200_000, b"while it was cut"]
    pair.primary.root.with_name("gone").rename(pair.primary.root)


@pytest.mark.parametrize("how", ["no right", "no account", "root", "foreign authority"])
def test_who_may_not_follow_gets_nothing(pair: TlsPair, how: str) -> None:
    pair.shows({"no right": OTHER, "no account": "no-such-account", "root": "root"}.get(
        how, ACCOUNT), trustme.CA() if how == "foreign authority" else None)
    done = pair.run("init", "--member", "b", "--", *pair.send)
    assert done.returncode == Exit.TEMPORARY, done.stderr
    assert not any(pair.root.joinpath("msgpool").iterdir()), "not a byte of the pool came"
    until(lambda: "A standby was refused" in pair.listened(), pair.listened)


def test_without_a_certificate_or_without_tls_nothing_is_said(pair: TlsPair) -> None:
    plain = socket.create_connection(("localhost", pair.port), WAIT_S)
    plain.sendall(b"OMQR" + bytes(2000))
    said = b""
    with suppress(ConnectionResetError):
        while part := plain.recv(4096):
            said += part
    assert b"OMQR" not in said
    plain.close()
    bare = ssl.create_default_context(cafile=str(pair.folder / "ca.pem"))
    with pytest.raises(OSError), socket.create_connection(
            ("localhost", pair.port), WAIT_S) as line, bare.wrap_socket(
            line, server_hostname="localhost") as wrapped:
        if wrapped.recv(1) == b"":
            raise OSError("closed")


def test_a_primary_that_is_not_the_one_of_the_address_is_told_nothing(pair: TlsPair) -> None:
    pair.issue("elsewhere.example.org", "own.pem")
    assert pair.listener is not None
    pair.listener.send_signal(signal.SIGHUP)
    until(lambda: "Configuration Reloaded" in pair.listened(), pair.listened)
    done = pair.run("init", "--member", "b", "--", *pair.send)
    assert done.returncode == Exit.TEMPORARY
    assert "its certificate is not believed" in done.stderr


def test_a_right_that_is_taken_away_counts_at_the_reload(pair: TlsPair) -> None:
    pair.make()
    pair.follow()
    pair.caught_up()
    pair.lets(OTHER)
    assert pair.listener is not None
    pair.listener.send_signal(signal.SIGHUP)
    until(lambda: "may not follow any more" in pair.listened(), pair.listened)
    until(lambda: not pair.status()["following"], pair.log.read_text)
    with client(pair) as c:
        c.put("A", b"not for it")
    until(lambda: f"account '{ACCOUNT}' may not follow" in pair.listened(), pair.listened)
    conf = pair.primary.conf / "authority.conf"
    conf.write_text("[standby]\nuser:nobody-of-that-name = follow\n")
    pair.listener.send_signal(signal.SIGHUP)
    until(lambda: "the old one stays in force" in pair.listened(), pair.listened)
    assert pair.listener.poll() is None
    pair.lets()


def test_strangers_of_one_host_do_not_keep_a_standby_out(pair: TlsPair) -> None:
    """They wait for nothing in the handshake; those above the bound are closed."""
    pair.make()
    lines = [socket.create_connection(("localhost", pair.port), WAIT_S) for _ in range(12)]
    until(lambda: "too many connections" in pair.listened(), pair.listened)
    assert pair.listener is not None and pair.listener.poll() is None
    for each in lines:
        each.close()
    pair.follow()
    pair.caught_up()


def test_a_hostile_standby_ends_its_own_line_alone(pair: TlsPair) -> None:
    pair.make()
    pair.follow()
    pair.caught_up()
    with socket.create_connection(("localhost", pair.port), WAIT_S) as plain, (
            pair.context().wrap_socket(plain, server_hostname="localhost")) as secured:
        line = Line(Secured(secured), "the primary", 10.0)
        line.send(Piece(PieceKind.ACK, 0, lsn=1 << 60))
        with pytest.raises(StreamBroken):
            while True:
                for piece in line.receive(WAIT_S):
                    assert piece.kind is PieceKind.REFUSE
    with client(pair) as c:
        c.put("A", b"goes on")
    pair.caught_up()


def test_a_standby_that_says_nothing_is_given_up(pair: TlsPair) -> None:
    conf = pair.primary.conf / "omq.conf"
    conf.write_text(conf.read_text() + "standby_silence_s = 5\n")
    assert pair.listener is not None
    pair.listener.send_signal(signal.SIGHUP)
    until(lambda: "Configuration Reloaded" in pair.listened(), pair.listened)
    with socket.create_connection(("localhost", pair.port), WAIT_S) as plain, (
            pair.context().wrap_socket(plain, server_hostname="localhost")):
        until(lambda: "it says nothing for" in pair.listened(), pair.listened)


def test_what_is_not_set_is_said(pair: TlsPair) -> None:
    conf = pair.primary.conf / "omq.conf"
    whole = conf.read_text()
    for key in ("amqp_tls_certificate", "amqp_tls_ca_file"):
        conf.write_text("\n".join(each for each in whole.splitlines() if not each.startswith(key)))
        done = subprocess.run([*OMQ, "standby", "listen", "--spool", str(pair.primary.root),
                               "--conf", str(pair.primary.conf)], capture_output=True, text=True,
                              timeout=WAIT_S, check=False)
        assert done.returncode == Exit.CONFIG and key in done.stderr
    conf.write_text("\n".join(each for each in whole.splitlines()
                              if not each.startswith("channel_tls_certificate")))
    done = pair.run("init", "--member", "b", "--", *pair.send)
    assert done.returncode == Exit.CONFIG and "channel_tls_certificate" in done.stderr
    conf.write_text(whole)
    for bad in ("tls://a:70000", "tls://a/b"):
        done = pair.run("init", "--member", "b", "--", bad)
        assert done.returncode == Exit.USAGE and "tls://HOST" in done.stderr


def test_a_former_primary_serves_no_standby(pair: TlsPair) -> None:
    pair.make()
    before = pair.primary.paths.uuid.read_bytes()
    path = pair.root / "instance.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"term": 3}))
    pair.follow()
    assert pair.primary.children[MANAGER].wait() == 0, "it is told to stop"
    until(lambda: "it refuses" in pair.log.read_text(), pair.log.read_text)
    assert open_spool(pair.primary.root).instance.role.value == "former"
    pair.end()
    pair.primary.paths.uuid.write_bytes(before)
