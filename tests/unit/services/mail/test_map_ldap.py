"""Maps in a directory: OpenLDAP's slapd; wrong and silent servers, and wrong files."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from omq.base.config_file import Entry
from omq.base.errors import ConfigError
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.map_file import source_of
from omq.services.mail.routes_file import load_routes
from tests.bench.peers import software
from tests.bench.peers.processes import Server, free_port
from tests.unit.services.mail.real import found, run
from tests.unit.services.mail.smtp.certificates import Certificates

WAIT_S = 60.0
# ldap3 verifies names by a function of ssl that is to go, and leaves a socket to the collector
# where a handshake fails.
pytestmark = [pytest.mark.filterwarnings(each) for each in (
    "ignore:ssl.match_hostname:DeprecationWarning", "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning")]
PEOPLE = "".join(f"""
dn: cn={name},dc=test
objectClass: inetOrgPerson
cn: {name}
sn: {name}
{mails}
""" for name, mails in (
    ("info", "mail: info@here.test\ndescription: alice@here.test, x@far.test\n"
             "description: bob@here.test"),
    ("none", "mail: none@here.test"),
    ("wrong", "mail: wrong@here.test\ndescription: no address"),
    ("odd", "mail: a*)(cn@here.test\ndescription: carol@here.test"),
))


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What ldap3 left is collected here, not in the test of another file."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ldap")


@pytest.fixture(scope="module")
def certificates(home: Path) -> Certificates:
    return Certificates(home)


@pytest.fixture(scope="module")
def slapd(home: Path, certificates: Certificates) -> Iterator[tuple[int, int]]:
    """A directory with PEOPLE, which nobody may read but cn=reader with "secret"; its ports, plain
    and TLS."""
    program = found("usr/sbin/slapd", "slapd")
    top = next(each for each in program.parents if (each / "etc/ldap/schema").is_dir())
    modules = top / "usr/lib/ldap"
    pem = certificates.make("localhost")
    (home / "data").mkdir()
    (home / "conf").write_text("".join(f"{line}\n" for line in (
        *(f"include {top}/etc/ldap/schema/{each}.schema" for each in (
            "core", "cosine", "inetorgperson")),
        f"modulepath {modules}", "moduleload back_mdb",
        f"TLSCertificateFile {pem}", f"TLSCertificateKeyFile {pem}",
        "database mdb", 'suffix "dc=test"', f"directory {home}/data", "maxsize 10485760",
        'rootdn "cn=reader,dc=test"', "rootpw secret", "sizelimit 50",
        "access to * by anonymous auth")))
    (home / "ldif").write_text("dn: dc=test\nobjectClass: domain\ndc: test\n" + PEOPLE)
    done = run([program, "-T", "add", "-f", home / "conf", "-l", home / "ldif"])
    assert done.returncode == 0, done.stderr
    plain, tls = free_port(), free_port()
    server = Server("slapd", home)
    server.start([program, "-d", "0", "-f", home / "conf", "-h",
                  f"ldap://127.0.0.1:{plain}/ ldaps://127.0.0.1:{tls}/"], software.environment())
    try:
        server.wait_port(plain)
        server.wait_port(tls)
        yield plain, tls
    finally:
        server.stop()


def look_up(folder: Path, key: str, **values: str) -> tuple[str, ...] | None:
    """The answer of a map with this section [ldap]; `key` is an address."""
    return source_of(line(folder, **values), whole=True).look_up(key, WAIT_S)


def line(folder: Path, **values: str) -> Entry:
    """The line of routes.conf, and its file."""
    entries = {"base": "dc=test", "filter": "(mail={address})", "attribute": "description",
               "bind_dn": "cn=reader,dc=test", "password": "secret"} | values
    path = folder / "map.ldap"
    path.write_text("[ldap]\n" + "".join(
        f"{name} = {value}\n" for name, value in entries.items() if value))
    path.chmod(0o640)
    return Entry(folder / "routes.conf", 3, "people", f"ldap:{path}")


def test_a_directory(slapd: tuple[int, int], tmp_path: Path) -> None:
    url = f"ldap://127.0.0.1:{slapd[0]}"
    assert look_up(tmp_path, "INFO@here.test", url=url) == (
        "alice@here.test", "x@far.test", "bob@here.test")
    assert look_up(tmp_path, "none@here.test", url=url) is None
    assert look_up(tmp_path, "nobody@here.test", url=url) is None
    assert look_up(tmp_path, "wrong@here.test", url=url, filter="(cn={local})",
                   attribute="mail") == ("wrong@here.test",)


def test_an_address_is_no_part_of_a_filter(slapd: tuple[int, int], tmp_path: Path) -> None:
    url = f"ldap://127.0.0.1:{slapd[0]}"
    for key in ("*@here.test", "x)(mail=*@here.test", "info@here.test)(cn=*", "{local}@here.test"):
        assert look_up(tmp_path, key, url=url) is None
    assert look_up(tmp_path, "a*)(cn@here.test", url=url) == ("carol@here.test",)


@pytest.mark.parametrize(("values", "told"), [
    ({"password": "guess"}, "InvalidCredentials"), ({"bind_dn": "", "password": ""}, "."),
    ({"base": "dc=none"}, "."), ({"filter": "((mail={address}"}, "Filter"),
    ({"url": "ldap://127.0.0.1:1"}, "."), ({"password": ""}, "."),
])
def test_what_a_directory_refuses_has_mail_wait(values: dict[str, str], told: str,
                                                slapd: tuple[int, int], tmp_path: Path) -> None:
    with pytest.raises(MapFailed, match=told):
        look_up(tmp_path, "info@here.test", **{"url": f"ldap://127.0.0.1:{slapd[0]}"} | values)


def test_a_value_of_a_directory_that_is_no_address(slapd: tuple[int, int], tmp_path: Path) -> None:
    with pytest.raises(MapFailed, match="no address"):
        look_up(tmp_path, "wrong@here.test", url=f"ldap://127.0.0.1:{slapd[0]}")


@pytest.mark.parametrize("way", ["ldaps", "starttls"])
def test_a_directory_over_tls(way: str, slapd: tuple[int, int], certificates: Certificates,
                              tmp_path: Path) -> None:
    more = {"url": f"ldaps://localhost:{slapd[1]}"} if way == "ldaps" else {
        "url": f"ldap://localhost:{slapd[0]}", "starttls": "yes"}
    assert look_up(tmp_path, "info@here.test", ca_file=str(certificates.ca_file), **more)
    with pytest.raises(MapFailed, match="certificate"):
        look_up(tmp_path, "info@here.test", **more)
    with pytest.raises(MapFailed):  # a certificate for another name
        look_up(tmp_path, "info@here.test", ca_file=str(certificates.ca_file),
                **more | {"url": more["url"].replace("localhost", "127.0.0.1")})


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x30\x84\0\0\0\5\2\1",
                                  b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00"])
def test_a_server_that_speaks_something_else(said: bytes, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        def answer() -> None:
            with suppress(OSError):
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    peer.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(MapFailed):
                look_up(tmp_path, "a@here.test",
                        url=f"ldap://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)


def test_a_silent_directory_costs_its_time(conf_dir: Path, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        line(tmp_path, url=f"ldap://127.0.0.1:{listener.getsockname()[1]}")
        (conf_dir / "routes.conf").write_text(
            "[local]\ndomains = here.test\nusers = *\n[router]\nmap_timeout_s = 1\n"
            f"[recipient_maps]\npeople = ldap:{tmp_path}/map.ldap\n")
        routes = load_routes(conf_dir)
        assert routes.recipient_maps is not None
        with pytest.raises(MapFailed, match="people"):
            routes.resolve("a@here.test", routes.recipient_maps.ask)
        routes.close()
    for each in set(threading.enumerate()) - before:
        each.join(WAIT_S)
        assert not each.is_alive(), "its own time-out ends it, too"


@pytest.mark.parametrize(("values", "told"), [
    ({"url": "http://x"}, "not a server"), ({"url": "ldap://x:99999"}, "."), ({"url": ""}, "url"),
    ({"filter": "(cn=x)"}, "same"), ({"starttls": "perhaps"}, "."), ({"other": "x"}, "unknown"),
    ({"url": "ldaps://x", "starttls": "yes"}, "first byte"), ({"url": "ldap://x"}, "in plain"),
    ({"ca_file": "ca.pem"}, "absolute"),
])
def test_a_wrong_file_of_a_directory_is_refused(values: dict[str, str], told: str, tmp_path: Path
                                                ) -> None:
    with pytest.raises(ConfigError, match=told):
        look_up(tmp_path, "a@here.test", **{"url": "ldap://127.0.0.1"} | values)


def test_a_password_that_others_can_read(tmp_path: Path) -> None:
    entry = line(tmp_path, url="ldap://127.0.0.1")
    os.chmod(tmp_path / "map.ldap", 0o644)
    with pytest.raises(ConfigError, match="others can read"):
        source_of(entry, whole=True)
