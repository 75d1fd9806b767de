"""The client of etcd's gateway: what a member answers is bounded in time and size, and believed of
a well-formed answer alone. The server here is a thread on loopback that answers as it is told."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from omq.base.errors import BadArgument, ConfigError, LeaseRefused
from omq.base.settings import Settings
from omq.services.standby import etcd
from omq.services.standby.etcd import CallFailed, Etcd, endpoints, stored

Answer = Callable[[bytes], bytes]


def ok(body: Any, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}".encode()


class Server:
    """Answers each request by the next of `answers`, the last one again and again."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[bytes] = []
        self._answers, self._tls = list(answers), tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            try:
                with self._tls.wrap_socket(line, server_side=True) if self._tls else line as safe:
                    safe.settimeout(5)
                    request = b""
                    while b"\r\n\r\n" not in request or not request.partition(b"\r\n\r\n")[2]:
                        request += safe.recv(65536)
                    self.asked.append(request)
                    answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                    safe.sendall(answer(request))
            except OSError:
                continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def one(*answers: Answer, tls: ssl.SSLContext | None = None) -> Server:
        made.append(Server(*answers, tls=tls))
        return made[-1]

    yield one
    for each in made:
        each.close()


def client(*servers: Server, timeout_s: float = 5, scheme: str = "http", **more: Any) -> Etcd:
    urls = ", ".join(f"{scheme}://localhost:{each.port}" for each in servers)
    return Etcd(Settings(standby_lease=urls, **more), Path(__file__).parent, timeout_s)


def test_an_answer_is_json_of_the_first_member_that_has_one(serve: Any) -> None:
    broken, good = serve(lambda _: b"HTTP/1.0 503 No\r\n\r\n{}"), serve(lambda _: ok({"a": 1}))
    found = client(broken, good)
    assert found.call("/v3/kv/range", {"key": "x"}) == {"a": 1}
    assert found.call("/v3/kv/range", {"key": "x"}) == {"a": 1}
    assert len(broken.asked) == 1, "the member that answered is asked first from then on"
    assert good.asked[0].startswith(b"POST /v3/kv/range HTTP/1.0\r\n")


@pytest.mark.parametrize(("answer", "why"), [
    (b"", "no answer of HTTP"),
    (b"HTTP/1.0 200 OK\r\n\r\nnot json", "no JSON object"),
    (b"HTTP/1.0 200 OK\r\n\r\n[1]", "no JSON object"),
    (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 200_000, "no JSON object"),
    (b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n{}", "HTTP status 302"),
    (b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe", "no JSON object"),
    (b"SSH-2.0-OpenSSH_9\r\n", "no answer of HTTP"),
])
def test_what_is_no_answer_is_none(serve: Any, answer: bytes, why: str) -> None:
    with pytest.raises(CallFailed, match=why):
        client(serve(lambda _: answer)).call("/v3/kv/range", {})


def test_a_huge_answer_is_cut_off(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "ANSWER_MAX", 1000)
    with pytest.raises(CallFailed, match="more than 1000 bytes"):
        client(serve(lambda _: ok("x" * 70_000))).call("/v3/kv/range", {})


def test_a_member_that_drips_has_one_deadline(serve: Any) -> None:
    """Each byte is in time, all of them are not; then the next member answers."""
    given = threading.Event()

    class Slow(Server):
        def _run(self) -> None:
            line, _ = self._socket.accept()
            with line:
                line.recv(65536)
                while not given.wait(0.02):
                    try:
                        line.sendall(b"H")
                    except OSError:
                        return

    slow, good = Slow(lambda _: b""), serve(lambda _: ok({}))
    try:
        assert client(slow, good, timeout_s=0.3).call("/v3/kv/range", {}) == {}
    finally:
        given.set()
        slow.close()


def test_nobody_is_there(serve: Any) -> None:
    gone = serve(lambda _: b"")
    gone.close()
    found = client(gone)
    with pytest.raises(CallFailed, match=f"localhost:{gone.port}: .*refused"):
        found.call("/v3/kv/range", {})
    gone._socket = socket.create_server(("127.0.0.1", 0))  # the fixture closes it again


def password(tmp_path: Path, mode: int = 0o600) -> dict[str, Any]:
    path = tmp_path / "secret"
    path.write_text("word\n")
    path.chmod(mode)
    return {"standby_lease_user": "omq", "standby_lease_password_file": str(path)}


def test_a_token_is_fetched_and_fetched_again_when_etcd_has_forgotten_it(serve: Any, tmp_path: Path
                                                                         ) -> None:
    server = serve(lambda _: ok({"token": "t.1"}), lambda _: ok({"a": 1}),
                   lambda _: ok({"code": 16, "error": "etcdserver: invalid auth token"}, "401 No"),
                   lambda _: ok({"token": "t.2"}), lambda _: ok({"a": 2}))
    found = client(server, **password(tmp_path))
    assert found.call("/v3/kv/range", {}) == {"a": 1}
    assert found.call("/v3/kv/range", {}) == {"a": 2}
    tokens = [each.partition(b"Authorization: ")[2].partition(b"\r\n")[0] for each in server.asked]
    assert tokens == [b"", b"t.1", b"t.1", b"", b"t.2"]
    assert json.loads(server.asked[0].partition(b"\r\n\r\n")[2]) == {
        "name": "omq", "password": "word"}


def test_a_no_of_etcd_is_no_silence(serve: Any, tmp_path: Path) -> None:
    wrong = serve(lambda _: ok({"code": 3, "error": "authentication failed"}, "400 Bad Request"))
    with pytest.raises(LeaseRefused, match="user omq: authentication failed"):
        client(wrong, **password(tmp_path)).call("/v3/kv/range", {})
    denied = serve(lambda _: ok({"token": "t"}),
                   lambda _: ok({"code": 7, "error": "permission denied"}, "403 Forbidden"))
    with pytest.raises(LeaseRefused, match="permission denied"):
        client(denied, **password(tmp_path)).call("/v3/kv/range", {})
    unnamed = serve(lambda _: ok({"code": 3, "error": "etcdserver: user name is empty"}, "400 Bad"))
    with pytest.raises(LeaseRefused, match="user name is empty"):
        client(unnamed).call("/v3/kv/range", {})


def test_a_token_cannot_bring_a_header_of_its_own(serve: Any, tmp_path: Path) -> None:
    server = serve(lambda _: ok({"token": "t\r\nX: y"}))
    with pytest.raises(CallFailed):
        client(server, **password(tmp_path)).call("/v3/kv/range", {})


def test_a_password_that_others_can_read_is_refused(tmp_path: Path) -> None:
    more = password(tmp_path, 0o644)
    with pytest.raises(ConfigError, match="others can read"):
        Etcd(Settings(standby_lease="http://h:1", **more), tmp_path, 1)
    with pytest.raises(ConfigError, match="standby_lease_password_file"):
        Etcd(Settings(standby_lease="http://h:1", standby_lease_user="omq"), tmp_path, 1)


def test_over_tls_etcd_is_verified_and_so_is_this_side(serve: Any, tmp_path: Path) -> None:
    ca, stranger = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "other.pem")
    own = ca.issue_cert("client")
    (tmp_path / "own.pem").write_bytes(
        own.private_key_pem.bytes() + own.cert_chain_pems[0].bytes())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("localhost").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    server = serve(lambda _: ok({"a": 1}), tls=context)
    good: dict[str, Any] = {"standby_lease_ca_file": str(tmp_path / "ca.pem"),
                            "standby_lease_certificate": str(tmp_path / "own.pem")}
    assert client(server, scheme="https", **good).call("/v3/kv/range", {}) == {"a": 1}
    with pytest.raises(CallFailed, match="certificate verify failed"):
        client(server, scheme="https", **good | {
            "standby_lease_ca_file": str(tmp_path / "other.pem")}).call("/v3/kv/range", {})
    with pytest.raises(CallFailed):
        client(server, scheme="https", standby_lease_ca_file=good["standby_lease_ca_file"]).call(
            "/v3/kv/range", {})
    with pytest.raises(ConfigError, match="standby_lease_certificate"):
        client(server, scheme="https", **good | {"standby_lease_certificate": "/none.pem"})


@pytest.mark.parametrize("text", ["", "etcd:2379", "ftp://h:1", "http://h", "http://h:0",
                                  "http://h:70000", "http://h:1/path", "http://a:1,,http://b:2"])
def test_an_address_that_is_none_is_named(text: str) -> None:
    with pytest.raises(BadArgument, match="standby_lease"):
        endpoints(text)


def test_addresses() -> None:
    assert [str(each) for each in endpoints("http://h:1, https://[::1]:2379/")] == [
        "h:1", "::1:2379"]


@pytest.mark.parametrize("kvs", [[{}], [{"value": 1}], [{"value": "!"}], [1], [{}, {}], "x",
                                 [{"value": "YQ==", "mod_revision": "-1"}],
                                 [{"value": "YQ==", "mod_revision": True}],
                                 [{"value": base64.b64encode(b"\xff").decode()}]])
def test_a_key_that_is_none(kvs: Any) -> None:
    if kvs == [{}]:
        assert stored({"kvs": kvs}).changed == 0
        return
    with pytest.raises(ValueError):
        stored({"kvs": kvs})
