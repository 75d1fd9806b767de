"""How lines to other hosts are secured: DANE, MTA-STS, the levels of [tls], and what is noted."""

from __future__ import annotations

import datetime
import hashlib
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dns.dnssec
import dns.dnssectypes
import dns.zone
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from omq.base import clock, events
from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.services.mail import dane, sts_fetch
from omq.services.mail.peer_security import load_security, sts_context
from omq.services.mail.routes import Routes, TlsRule, peer_named
from omq.services.mail.routes_file import load_routes
from omq.services.mail.sts_policy import NotAPolicyError, identity_of, policy_of
from omq.services.mail.tls_sessions import read_sessions
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Defer, Done
from tests.unit.services.mail.conftest import sent_by
from tests.unit.services.mail.name_server import NameServer
from tests.unit.services.mail.real import unbound
from tests.unit.services.mail.stage_peer import StagePeer
from tests.unit.services.mail.sts_server import HEAD, StsServer, policy

BODY = b"Subject: x\r\n\r\nhello\r\n"
LOCAL = "[local]\nliterals = 192.0.2.1\n"
ALL = frozenset(("*",))


class Authority:
    """Of the tests: contexts of servers, and what TLSA records say of them."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.file = folder / "authority.pem"
        self._ca.cert_pem.write_to_path(str(self.file))
        self.pem = self._ca.cert_pem.bytes()
        self._folder = folder

    def server(self, *names: str, expired: bool = False) -> tuple[ssl.SSLContext, Any]:
        """With a chain up to the authority's own certificate; the server's certificate."""
        more = {"not_after": datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
                "not_before": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)} if expired else {}
        made = self._ca.issue_cert(*names, **more)  # type: ignore[arg-type]
        path = self._folder / "server.pem"
        own = made.cert_chain_pems[0].bytes()
        path.write_bytes(made.private_key_pem.bytes() + own + self.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context, x509.load_pem_x509_certificate(own)

    @property
    def certificate(self) -> Any:
        return x509.load_pem_x509_certificate(self.pem)


def tlsa(usage: int, selector: int, matching: int, certificate: Any) -> str:
    """A record that says this of a certificate."""
    seen = certificate.public_bytes(Encoding.DER) if selector == 0 else (
        certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    data = seen
    if matching:
        data = (hashlib.sha256 if matching == 1 else hashlib.sha512)(seen).digest()
    return f"{usage} {selector} {matching} {data.hex()}"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def unix(service: Callable[..., Any], message: Callable[..., Any], authority: Authority
         ) -> Iterator[Callable[..., Any]]:
    """unix(records, port, routes, signed, **settings): send(*recipients)."""
    servers: list[NameServer] = []

    def make(records: dict[str, list[str]], port: int, routes: str = "",
             signed: frozenset[str] = ALL, **settings: Any) -> Any:
        server = NameServer(records, signed=signed)
        servers.append(server)
        made = service(UnixOutService, "unix", LOCAL + routes, **{
            "unix_mx": True, "unix_port": port, "unix_ip": "ipv4", "dns_servers": server.address,
            "dns_validates": True, "unix_tls_ca_file": str(authority.file)} | settings)

        def send(*recipients: str, **more: str) -> Any:
            return sent_by(made, message(BODY, {
                "mail.from": "s@here.test", **{f"mail.{name}": said for name, said in more.items()},
                "mail.to.UNIX": "\n".join(recipients or ("x@a.test",))}, queue="UNIX"))

        send.server, send.service = server, made  # type: ignore[attr-defined]
        return send

    yield make
    for each in servers:
        each.__exit__()


@pytest.fixture
def noted(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    return lambda: list(read_sessions(tmp_path / "spool/logs", "unix"))


def at(port: int, *records: str, host: str = "mx.a.test") -> dict[str, list[str]]:
    """a.test with one exchanger on loopback, and its TLSA records."""
    found = {"a.test MX": [f"10 {host}."], f"{host} A": ["127.0.0.1"]}
    return found | ({f"_{port}._tcp.{host} TLSA": [*records]} if records else {})


def silent(peer: StagePeer) -> bool:
    """Whether it heard nothing of the mail."""
    return not any(each.startswith(("MAIL", "RCPT", "DATA")) for each in peer.commands)


# DANE


@pytest.mark.parametrize(("usage", "selector", "matching"), [
    (3, selector, matching) for selector in (0, 1) for matching in (0, 1, 2)])
def test_the_servers_own_certificate(unix: Any, authority: Authority, noted: Any, usage: int,
                                     selector: int, matching: int) -> None:
    """Neither its name nor its time matters (RFC 7672 section 3.1.1)."""
    context, own = authority.server("elsewhere.test", expired=True)
    with StagePeer(context=context) as peer:
        send = unix(at(peer.port, tlsa(usage, selector, matching, own)), peer.port,
                    unix_tls="dane")
        assert send() == Done()
        assert (peer.secured, len(peer.received)) == (1, 1)
    (row,) = noted()
    assert (row["policy"], row["level"], row["result"]) == ("tlsa", "dane", "")
    assert row["certificate"]["sha256"] == hashlib.sha256(
        own.public_bytes(Encoding.DER)).hexdigest()


@pytest.mark.parametrize(("selector", "matching"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])
def test_an_authority_of_the_records(unix: Any, authority: Authority, selector: int, matching: int
                                     ) -> None:
    context, _ = authority.server("mx.a.test")
    with StagePeer(context=context) as peer:
        record = tlsa(2, selector, matching, authority.certificate)
        assert unix(at(peer.port, record), peer.port, unix_tls="dane")() == Done()
        assert peer.secured == 1


@pytest.mark.parametrize(("name", "expired", "result"), [
    ("elsewhere.test", False, "certificate-host-mismatch"),
    ("mx.a.test", True, "certificate-not-trusted")])
def test_what_an_authority_signed_must_be_for_the_host_and_now(
        unix: Any, authority: Authority, noted: Any, name: str, result: str, *, expired: bool
        ) -> None:
    context, _ = authority.server(name, expired=expired)
    with StagePeer(context=context) as peer:
        found = unix(at(peer.port, tlsa(2, 0, 1, authority.certificate)), peer.port,
                     unix_tls="dane")()
        assert isinstance(found, Defer)
        assert silent(peer)
    assert [each["result"] for each in noted()] == [result]


def test_another_certificate_has_no_mail(unix: Any, authority: Authority, noted: Any,
                                         tmp_path: Path) -> None:
    context, _ = authority.server("mx.a.test")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    _, stranger = other.server("mx.a.test")
    with StagePeer(context=context) as peer:
        send = unix(at(peer.port, tlsa(3, 1, 1, stranger), tlsa(2, 0, 1, other.certificate)),
                    peer.port, unix_tls="dane")
        found = send()
        assert isinstance(found, Defer)
        assert "no TLSA record of mx.a.test matches" in found.reason
        assert silent(peer)
    (row,) = noted()
    assert row["result"] == "validation-failure"
    assert row["certificate"]["issuer"]


def test_records_without_starttls_have_no_mail(unix: Any, authority: Authority, noted: Any
                                               ) -> None:
    _, own = authority.server("mx.a.test")
    with StagePeer() as peer:
        found = unix(at(peer.port, tlsa(3, 1, 1, own)), peer.port, unix_tls="dane")()
        assert isinstance(found, Defer)
        assert "TLS is required here" in found.reason
        assert silent(peer)
    assert [each["result"] for each in noted()] == ["starttls-not-supported"]


@pytest.mark.parametrize("record", [
    "0 0 1 " + "ab" * 32, "1 1 1 " + "ab" * 32, "3 7 1 " + "ab" * 32, "3 1 9 " + "ab" * 32])
def test_records_that_do_not_count_want_tls_all_the_same(unix: Any, authority: Authority,
                                                         record: str) -> None:
    context, _ = authority.server("elsewhere.test")
    with StagePeer(context=context) as peer:
        assert unix(at(peer.port, record), peer.port, unix_tls="dane")() == Done()
        assert peer.secured == 1
    with StagePeer() as plain:
        assert isinstance(unix(at(plain.port, record), plain.port, unix_tls="dane")(), Defer)
        assert silent(plain)
    with StagePeer(context=context) as peer:
        assert isinstance(unix(at(peer.port, record), peer.port, unix_tls="dane-only")(), Defer)
        assert not peer.commands


@pytest.mark.parametrize("unsigned", ["a.test", "mx.a.test"])
def test_what_is_not_signed_has_no_records(unix: Any, authority: Authority, unsigned: str) -> None:
    """An exchanger or address that anybody may have made up: nothing is asked, nothing believed."""
    _, own = authority.server("mx.a.test")
    with StagePeer() as peer:
        records = at(peer.port, tlsa(3, 1, 1, own))
        signed = frozenset(("a.test", "mx.a.test", f"_{peer.port}._tcp.mx.a.test")) - {unsigned}
        send = unix(records, peer.port, signed=signed, unix_tls="dane")
        assert send() == Done(), "as `may`"
        assert not any("TLSA" in each for each in send.server.asked)
        only = unix(records, peer.port, signed=signed, unix_tls="dane-only")
        found = only()
        assert isinstance(found, Defer)
        assert "dane-only" in found.reason


def test_unsigned_records_are_none(unix: Any, authority: Authority) -> None:
    _, own = authority.server("mx.a.test")
    with StagePeer() as peer:
        send = unix(at(peer.port, tlsa(3, 1, 1, own)), peer.port,
                    signed=frozenset(("a.test", "mx.a.test")), unix_tls="dane")
        assert send() == Done()


@pytest.mark.parametrize("answer", ["SERVFAIL", "REFUSED", "silence", "garbage"])
def test_no_answer_about_records_is_not_that_there_are_none(unix: Any, answer: str, noted: Any
                                                            ) -> None:
    with StagePeer() as peer:
        found = unix(at(peer.port, answer), peer.port, unix_tls="dane", dns_timeout_s=1)()
        assert isinstance(found, Defer)
        assert "no answer that can be trusted" in found.reason
        assert not peer.commands
    assert {each["result"] for each in noted()} == {"dnssec-invalid"}


def test_the_next_exchanger_where_one_does_not_match(unix: Any, authority: Authority) -> None:
    context, own = authority.server("two.a.test")
    with StagePeer(context=context) as peer:
        bad, good = tlsa(3, 1, 1, authority.certificate), tlsa(3, 1, 1, own)
        records = {"a.test MX": ["10 one.a.test.", "20 two.a.test."],
                   "one.a.test A": ["127.0.0.1"], "two.a.test A": ["127.0.0.1"],
                   f"_{peer.port}._tcp.one.a.test TLSA": [bad],
                   f"_{peer.port}._tcp.two.a.test TLSA": [good]}
        assert unix(records, peer.port, unix_tls="dane")() == Done()
        assert len(peer.received) == 1


def test_a_host_of_the_routes_by_dane(unix: Any, authority: Authority) -> None:
    context, own = authority.server("elsewhere.test")
    with StagePeer(context=context) as peer:
        records = {"smart.test A": ["127.0.0.1"],
                   f"_{peer.port}._tcp.smart.test TLSA": [tlsa(3, 1, 1, own)]}
        routes = f"[peers]\n* = smart.test:{peer.port}\n[tls]\nsmart.test = dane-only\n"
        assert unix(records, 1, routes)() == Done()
        assert peer.secured == 1
        away = unix({}, 1, routes)()
        assert isinstance(away, Defer), "a host of the routes that has no name now is away"
        unsigned = unix(records, 1, routes, signed=frozenset())()
        assert isinstance(unsigned, Defer)
        assert "no signed TLSA record" in unsigned.reason


def test_an_address_has_no_records(unix: Any) -> None:
    with StagePeer() as peer:
        rule = "[tls]\n* = {}\n[peers]\n* = 127.0.0.1:" + f"{peer.port}\n"
        assert unix({}, 1, rule.format("dane"))() == Done()
        assert isinstance(unix({}, 1, rule.format("dane-only"))(), Defer)


def test_of_several_digests_the_strongest_counts() -> None:
    strong, weak = (3, 1, 2, b"s" * 64), (3, 1, 1, b"w" * 32)
    assert dane.usable([weak, strong, (2, 0, 1, b"t" * 32), (3, 1, 0, b"whole")]) == (
        (2, 0, 1, (b"t" * 32).hex()), (3, 1, 0, b"whole".hex()), (3, 1, 2, (b"s" * 64).hex()))
    assert len(dane.usable((3, 1, 0, b"%d" % number) for number in range(1000))) == (
        dane.RECORDS_MAX)


@pytest.mark.parametrize("chain", [(), (b"",), (b"\x30\x82",), (b"garbage" * 1000,)])
def test_what_is_no_certificate(chain: tuple[bytes, ...]) -> None:
    with pytest.raises(dane.NotMatchedError):
        dane.check(chain, "mx.a.test", [(3, 1, 1, "ab" * 32), (2, 0, 0, "00")])


def test_dane_needs_a_resolver_that_is_believed(conf_dir: Path) -> None:
    with pytest.raises(ConfigError, match="dns_validates"):
        load_security(Settings(unix_tls="dane"), conf_dir, Routes())
    with pytest.raises(ConfigError, match="dns_validates"):
        load_security(Settings(), conf_dir, Routes(tls={"a.test": TlsRule("dane-only")}))


# the table of levels


@pytest.mark.parametrize(("names", "rule", "well"), [
    (("a.test",), "secure", True), (("mx.a.test",), "secure", True),
    (("*.a.test",), "secure", True), (("mx.hoster.test",), "secure", False),
    (("mx.hoster.test",), "secure mx.hoster.test", True),
    (("*.hoster.test",), "secure mx.hoster.test", True),
    (("*.hoster.test",), "secure hoster.test", False),
    (("nota.test",), "secure", False)])
def test_secure_is_for_the_domain_whatever_the_host(
        unix: Any, authority: Authority, noted: Any, names: tuple[str, ...], rule: str, *,
        well: bool) -> None:
    context, _ = authority.server(*names)
    with StagePeer(context=context) as peer:
        found = unix(at(peer.port, host="mx.hoster.test"), peer.port, f"[tls]\na.test = {rule}\n")()
        assert (found == Done()) is well, found
        assert silent(peer) is not well
    assert [each["result"] for each in noted()] == (
        [""] if well else ["certificate-host-mismatch"])


def test_secure_wants_an_authority_that_is_known(unix: Any, tmp_path: Path, noted: Any) -> None:
    (tmp_path / "x").mkdir()
    context, _ = Authority(tmp_path / "x").server("a.test")
    with StagePeer(context=context) as peer:
        assert isinstance(unix(at(peer.port), peer.port, "[tls]\na.test = secure\n")(), Defer)
        assert silent(peer)
    assert [each["result"] for each in noted()] == ["certificate-not-trusted"]


def test_domains_of_one_host_do_not_share_a_line_that_is_for_one(unix: Any, authority: Authority
                                                                 ) -> None:
    context, _ = authority.server("a.test")
    with StagePeer(context=context) as peer:
        records = at(peer.port, host="mx.hoster.test") | {"b.test MX": ["10 mx.hoster.test."]}
        send = unix(records, peer.port, "[tls]\na.test = secure\nb.test = secure\n")
        assert send("x@a.test") == Done()
        assert isinstance(send("x@b.test"), Defer)
        assert [each[1] for each in peer.received] == [["x@a.test"]]


@pytest.mark.parametrize("level", ["none", "may", "encrypt", "verify", "dane", "testing",
                                   "secure=a.test,*.a.test", ""])
def test_a_peer_is_known_by_its_name_again(level: str) -> None:
    from omq.services.mail.routes import Peer

    peer = Peer("mx.a.test", 25, level)
    assert peer_named(str(peer)) == peer


@pytest.mark.parametrize("rule", ["a.test = dane mx.a.test", "a.test = secure a/b", "a.test = most",
                                  "a.test = verify a,b=c"])
def test_wrong_rules_are_refused(conf_dir: Path, rule: str) -> None:
    (conf_dir / "routes.conf").write_text(f"[tls]\n{rule}\n")
    with pytest.raises(ConfigError, match="not a TLS rule"):
        load_routes(conf_dir)


def signed(records: dict[str, list[str]], damaged: str = "") -> tuple[str, str]:
    """a.test as a zone file with its signatures, made now, and its DS record. `damaged`: a text of
    the signed zone that is another afterwards, as on the way."""
    key = ed25519.Ed25519PrivateKey.generate()
    lines = ["@ 60 IN SOA ns hostmaster 1 3600 600 86400 60", "@ 60 IN NS ns",
             "ns 60 IN A 127.0.0.1"]
    for name, values in records.items():
        owner, kind = name.split()
        lines += [f"{owner}. 60 IN {kind} {each}" for each in values]
    zone = dns.zone.from_text("\n".join(lines), origin="a.test.", relativize=False)
    public = dns.dnssec.make_dnskey(key.public_key(), dns.dnssectypes.Algorithm.ED25519, flags=257)
    dns.dnssec.sign_zone(zone, keys=[(key, public)], lifetime=86400, add_dnskey=True)
    text = zone.to_text(relativize=False)
    assert not damaged or text.count(damaged) == 1
    other = f"{damaged[:-1]}{'1' if damaged[-1:] == '0' else '0'}"
    digest = dns.dnssec.make_ds("a.test.", public, "SHA256")
    return (text.replace(damaged, other) if damaged else text) + "\n", f"a.test. IN DS {digest}"


@pytest.mark.parametrize(("what", "level"), [
    ("signed", "dane"), ("another certificate", ""), ("damaged", ""), ("no anchor", "may")])
def test_a_resolver_that_validates(unix: Any, authority: Authority, noted: Any, tmp_path: Path,
                                   what: str, level: str) -> None:
    """unbound itself, with a zone that is signed: who publishes has what he says, and what was
    changed on the way has the mail wait. A zone that nobody vouches for is not signed."""
    home = tmp_path / "unbound"
    home.mkdir()
    context, own = authority.server("mx.a.test")
    with StagePeer(context=context) as peer:
        record = tlsa(3, 1, 1, authority.certificate if what == "another certificate" else own)
        zone, anchor = signed(at(peer.port, record),
                              record.split()[-1] if what == "damaged" else "")
        with unbound(home, "a.test", zone, "" if what == "no anchor" else anchor) as port:
            send = unix({}, peer.port, unix_tls="dane", dns_servers=f"127.0.0.1:{port}")
            found = send()
        if not level:
            assert isinstance(found, Defer)
            assert silent(peer)
            return
        assert found == Done()
        assert len(peer.received) == 1
    assert noted()[-1]["policy"] == ("tlsa" if level == "dane" else "no-policy-found")


# MTA-STS


STS = {"_mta-sts.a.test TXT": ['"v=STSv1; id=1;"'], "mta-sts.a.test A": ["127.0.0.1"]}


@pytest.fixture
def policies(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """policies(answer): the server of the policies of a.test."""
    running: list[StsServer] = []

    def make(answer: bytes | None, *names: str, slow: bool = False) -> StsServer:
        context, _ = authority.server(*(names or ("mta-sts.a.test",)))
        server = StsServer(context, answer, slow=slow)
        running.append(server)
        monkeypatch.setattr(sts_fetch, "PORT", server.port)
        return server

    yield make
    for each in running:
        each.__exit__()


def test_a_policy_that_is_enforced(unix: Any, authority: Authority, policies: Any, noted: Any,
                                   tmp_path: Path) -> None:
    policies(policy("enforce", "*.a.test"))
    context, _ = authority.server("mx.a.test")
    with StagePeer(context=context) as peer:
        assert unix(at(peer.port) | STS, peer.port, unix_mta_sts=True)() == Done()
        assert peer.secured == 1
    (row,) = noted()
    assert (row["policy"], row["level"], row["result"]) == ("sts", "verify", "")
    assert row["lines"][:3] == ["version: STSv1", "mode: enforce", "mx: *.a.test"]
    assert len([*(tmp_path / "spool/unix.sts").glob("*.json")]) == 1


@pytest.mark.parametrize("wants", [{"unix_tls": "dane"}, {"unix_tls": "dane-only"},
                                   {"unix_mta_sts": True}])
def test_what_a_sender_calls_optional_goes_where_tls_is_broken_and_is_not_counted(
        unix: Any, authority: Authority, policies: Any, noted: Any, wants: dict[str, Any]) -> None:
    """TLS-Required: No (RFC 8689): what the domain publishes does not bind."""
    policies(policy("enforce", "mx.elsewhere.test"))
    context, _ = authority.server("elsewhere.test")
    for its in (context, None):
        with StagePeer(context=its) as peer:
            records = at(peer.port, tlsa(3, 1, 1, authority.certificate)) | STS
            send = unix(records, peer.port, **wants)
            assert isinstance(send(), Defer)
            assert silent(peer)
            counted = len(noted())
            assert send(tls="optional") == Done()
            assert len(peer.received) == 1
            assert len(noted()) == counted, "a report is not about reports"


@pytest.mark.parametrize(("routes", "wants"), [
    ("[tls]\na.test = encrypt\n", {}), ("[tls]\na.test = dane-only\n", {}),
    ("", {"unix_tls": "encrypt"})])
def test_what_this_host_wants_is_not_its_senders_choice(
        unix: Any, authority: Authority, routes: str, wants: dict[str, Any]) -> None:
    with StagePeer() as peer:
        assert isinstance(unix(at(peer.port), peer.port, routes, **wants)(tls="optional"), Defer)
        assert silent(peer)


@pytest.mark.parametrize("names", [("elsewhere.test",), ()])
def test_an_enforced_policy_without_the_right_certificate(
        unix: Any, authority: Authority, policies: Any, names: tuple[str, ...]) -> None:
    policies(policy("enforce", "mx.a.test"))
    context = authority.server(*names)[0] if names else None
    with StagePeer(context=context) as peer:
        assert isinstance(unix(at(peer.port) | STS, peer.port, unix_mta_sts=True)(), Defer)
        assert silent(peer)


def test_an_exchanger_that_the_policy_does_not_name(unix: Any, authority: Authority, policies: Any,
                                                    noted: Any) -> None:
    policies(policy("enforce", "mx.a.test", "*.b.test"))
    context, _ = authority.server("evil.test", "deep.mx.b.test")
    for host in ("evil.test", "deep.mx.b.test"):  # a "*" is one label
        with StagePeer(context=context) as peer:
            found = unix(at(peer.port, host=host) | STS, peer.port, unix_mta_sts=True)()
            assert isinstance(found, Defer)
            assert "MTA-STS policy of a.test" in found.reason
            assert not peer.commands
    assert {each["result"] for each in noted()} == {"validation-failure"}


@pytest.mark.parametrize(("names", "host", "result"), [
    (("elsewhere.test",), "mx.a.test", "certificate-host-mismatch"),
    ((), "mx.a.test", "starttls-not-supported"),
    (("mx.b.test",), "mx.b.test", "validation-failure"), (("mx.a.test",), "mx.a.test", "")])
def test_a_policy_that_is_tested_stops_nothing_and_is_counted(
        unix: Any, authority: Authority, policies: Any, noted: Any, names: tuple[str, ...],
        host: str, result: str) -> None:
    policies(policy("testing", "mx.a.test"))
    context = authority.server(*names)[0] if names else None
    with StagePeer(context=context) as peer:
        assert unix(at(peer.port, host=host) | STS, peer.port, unix_mta_sts=True)() == Done()
        assert len(peer.received) == 1
        assert bool(peer.secured) is bool(names)
    assert [(each["policy"], each["result"]) for each in noted()] == [("sts", result)]


@pytest.mark.parametrize(("answer", "result"), [
    (b"HTTP/1.1 404 Not Found\r\n\r\n", "sts-policy-fetch-error"),
    (b"HTTP/1.1 301 Moved\r\nLocation: https://evil.test/\r\n\r\n", "sts-policy-fetch-error"),
    (HEAD.replace("plain", "html").encode() + b"version: STSv1\n", "sts-policy-fetch-error"),
    (HEAD.encode() + b"x" * 100_000, "sts-policy-fetch-error"),
    (b"\x00garbage\r\n" * 9, "sts-policy-fetch-error"),
    (b"", "sts-policy-fetch-error"),
    (HEAD.replace("\r\n\r\n", "\r\nContent-Length: 900\r\n\r\n").encode() + (
        b"version: STSv1\nmode: none\nmax_age: 9\n"), "sts-policy-fetch-error"),
    (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000, "sts-policy-fetch-error"),
    (HEAD.encode() + b"version: STSv1\nmode: enforce\nmax_age: 9\n", "sts-policy-invalid"),
    (HEAD.encode() + b"\xff\xfe", "sts-policy-invalid")])
def test_a_policy_that_cannot_be_had_is_told_and_counted(
        unix: Any, policies: Any, noted: Any, logged: Any, answer: bytes, result: str) -> None:
    server = policies(answer)
    with StagePeer() as peer:
        send = unix(at(peer.port) | STS, peer.port, unix_mta_sts=True)
        assert send() == Done(), "there is none"
    assert len(server.asked) == 1
    assert noted()[0]["result"] == result
    assert events.STS_FAILED.number in logged()


def test_a_server_of_policies_that_cannot_show_who_it_is(unix: Any, policies: Any, noted: Any
                                                         ) -> None:
    server = policies(policy("enforce", "mx.a.test"), "elsewhere.test")
    with StagePeer() as peer:
        assert unix(at(peer.port) | STS, peer.port, unix_mta_sts=True)() == Done()
    assert (noted()[0]["result"], server.asked) == ("sts-webpki-invalid", [])


@pytest.mark.parametrize("slow", [False, True])
def test_a_server_of_policies_has_its_time(unix: Any, policies: Any, noted: Any, *, slow: bool
                                           ) -> None:
    """Also one that goes on, byte by byte."""
    policies(HEAD.encode() if slow else None, slow=slow)
    with StagePeer() as peer:
        send = unix(at(peer.port) | STS, peer.port, unix_mta_sts=True, unix_mta_sts_timeout_s=1)
        assert send() == Done()
    assert "took too long" in noted()[0]["reason"]


def test_a_policy_counts_while_nobody_answers(unix: Any, authority: Authority, policies: Any,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps the record and the server away gets no mail in plain; over restarts, too."""
    server = policies(policy("enforce", "mx.a.test"))
    context, _ = authority.server("mx.a.test")
    with StagePeer(context=context) as peer:
        assert unix(at(peer.port) | STS, peer.port, unix_mta_sts=True)() == Done()
    assert len(server.asked) == 1
    for record in ({"_mta-sts.a.test TXT": ["SERVFAIL"]}, {}, {"_mta-sts.a.test TXT": ['"v=no"']}):
        with StagePeer() as plain:
            assert isinstance(unix(at(plain.port) | record, plain.port, unix_mta_sts=True,
                                   dns_timeout_s=1)(), Defer)
            assert silent(plain)
    now_ns = clock.wall_ns()
    monkeypatch.setattr(clock, "wall_ns", lambda: now_ns + 605_000 * clock.NS_PER_S)
    with StagePeer() as plain:
        assert unix(at(plain.port), plain.port, unix_mta_sts=True)() == Done(), "its time is over"


def test_a_new_id_is_a_new_policy(unix: Any, policies: Any) -> None:
    server = policies(policy("enforce", "mx.a.test"))
    with StagePeer() as plain:
        assert isinstance(unix(at(plain.port) | STS, plain.port, unix_mta_sts=True)(), Defer)
        server.answer = policy("none")
        assert isinstance(unix(at(plain.port) | STS, plain.port, unix_mta_sts=True)(), Defer)
        assert len(server.asked) == 1, "what is kept is not fetched again"
        new = STS | {"_mta-sts.a.test TXT": ['"v=STSv1; id=2"']}
        assert unix(at(plain.port) | new, plain.port, unix_mta_sts=True)() == Done()
        assert len(server.asked) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"domain": "b.test"}', b"\xff" * 9])
def test_a_damaged_file_of_a_policy_is_fetched_again(
        unix: Any, policies: Any, tmp_path: Path, damage: bytes) -> None:
    server = policies(policy("enforce", "mx.a.test"))
    with StagePeer() as plain:
        assert isinstance(unix(at(plain.port) | STS, plain.port, unix_mta_sts=True)(), Defer)
        (file,) = (tmp_path / "spool/unix.sts").glob("*.json")
        whole = file.read_bytes()
        file.write_bytes(damage)
        assert isinstance(unix(at(plain.port) | STS, plain.port, unix_mta_sts=True)(), Defer)
    assert len(server.asked) == 2
    assert json.loads(file.read_bytes())["mx"] == json.loads(whole)["mx"]


def test_a_clock_that_was_set_back_fetches_anew(unix: Any, policies: Any,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    server = policies(policy("enforce", "mx.a.test"))
    with StagePeer() as plain:
        assert isinstance(unix(at(plain.port) | STS, plain.port, unix_mta_sts=True)(), Defer)
        now_ns = clock.wall_ns()
        monkeypatch.setattr(clock, "wall_ns", lambda: now_ns - 10**9 * clock.NS_PER_S)
        assert isinstance(unix(at(plain.port) | STS, plain.port, unix_mta_sts=True)(), Defer)
    assert len(server.asked) == 2


def test_a_policy_that_cannot_be_written_counts_all_the_same(
        unix: Any, policies: Any, logged: Any, tmp_path: Path) -> None:
    policies(policy("enforce", "mx.a.test"))
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/unix.sts").write_text("no folder")
    with StagePeer() as plain:
        assert isinstance(unix(at(plain.port) | STS, plain.port, unix_mta_sts=True)(), Defer)
    assert events.STS_NOT_KEPT.number in logged()


def test_a_line_of_the_routes_and_dane_come_before_a_policy(
        unix: Any, authority: Authority, policies: Any) -> None:
    server = policies(policy("enforce", "other.a.test"))
    context, own = authority.server("elsewhere.test")
    with StagePeer(context=context) as peer:
        ruled = unix(at(peer.port) | STS, peer.port, "[tls]\na.test = encrypt\n", unix_mta_sts=True)
        assert ruled() == Done()
        assert not server.asked
        by_dane = unix(at(peer.port, tlsa(3, 1, 1, own)) | STS, peer.port, unix_mta_sts=True,
                       unix_tls="dane")
        assert by_dane() == Done()


@pytest.mark.parametrize(("texts", "identity"), [
    ([b"v=STSv1; id=20160831085700Z;"], "20160831085700Z"), ([b"v=STSv1;id=a"], "a"),
    ([b"v=STSv1; id=a", b"v=STSv1; id=b"], ""), ([b"v=STSv1; id=a", b"v=spf1"], "a"),
    ([b"v=STSv1"], ""), ([b"v=STSv1; id=a b"], ""), ([b"v=STSv1; id=" + b"x" * 33], ""),
    ([b"v=STSv2; id=a"], ""), ([], ""), ([b"\xff"], "")])
def test_records_of_policies(texts: list[bytes], identity: str) -> None:
    assert identity_of(texts) == identity


@pytest.mark.parametrize("text", [
    b"", b"version: STSv2\nmode: none\nmax_age: 1\n", b"version: STSv1\nmode: maybe\nmax_age: 1\n",
    b"version: STSv1\nmode: none\n", b"version: STSv1\nmode: none\nmax_age: -1\n",
    b"version: STSv1\nmode: none\nmax_age: " + b"9" * 5000,
    b"version: STSv1\nmode: enforce\nmx: a b\nmax_age: 1\n",
    b"version: STSv1\nmode: enforce\nmx: *.*.a\nmax_age: 1\n",
    b"version: STSv1\nmode: enforce\nmax_age: 1\n" + b"mx: a.test\n" * 101, b"no line\n"])
def test_what_is_no_policy(text: bytes) -> None:
    with pytest.raises(NotAPolicyError):
        policy_of(text, "1")


def test_a_policy_has_further_keys_and_the_first_of_two() -> None:
    found = policy_of(b"version: STSv1\r\nmode: testing\r\nmode: enforce\r\nmx: A.Test\r\n"
                      b"new-key: x\r\nmax_age: 99999999999\r\n".replace(b"99999999999",
                                                                       b"9999999999"), "1")
    assert (found.mode, found.mx, found.max_age_s) == ("testing", ("a.test",), 31_557_600)


def test_policies_need_exchangers(conf_dir: Path) -> None:
    with pytest.raises(ConfigError, match="unix_mx"):
        sts_context(Settings(unix_mta_sts=True), conf_dir)
