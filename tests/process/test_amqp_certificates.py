"""amqps: certificates that are exchanged under a running server, expired, revoked, foreign."""

from __future__ import annotations

import datetime
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import omq
from tests.process.amqp_world import SERVER, AmqpWorld, amqp_world, needs_proton
from tests.waiting import until

needs_proton()

from omq.base.errors import RemoteLost  # noqa: E402

WAIT_S = 120


class Town:
    """An authority, and where its files lie."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.folder = trustme.CA(), folder
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        self.ca.cert_pem.write_to_path(folder / "clients.pem")

    def own(self, *names: str, ca: trustme.CA | None = None,
            until: datetime.datetime | None = None) -> Path:
        """The server's certificate."""
        made = (ca or self.ca).issue_cert(*names, not_after=until)
        path = self.folder / "own.pem"
        path.write_bytes(made.private_key_pem.bytes() + made.cert_chain_pems[0].bytes())
        path.chmod(0o600)
        return path

    def client(self, user: str, until: datetime.datetime | None = None) -> str:
        """What a URL says of a program's certificate."""
        made = self.ca.issue_cert("client", common_name=user, not_after=until)
        path = self.folder / f"{user}.pem"
        path.write_bytes(made.private_key_pem.bytes() + made.cert_chain_pems[0].bytes())
        return f"&certificate={path}"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(tmp_path_factory.mktemp("town"))


@pytest.fixture(scope="module")
def world(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpWorld]:
    own = town.own("localhost")
    with amqp_world(tmp_path_factory.mktemp("amqp"), amqps_listen_port=0, amqp_anonymous_user="",
                    amqp_tls_certificate=own, amqp_tls_ca_file=town.folder / "clients.pem") as made:
        yield made


def url(world: AmqpWorld, town: Town, more: str = "") -> str:
    port = world.await_port("amqps.port")
    return f"amqps://localhost:{port}/?ca_file={town.folder / 'ca.pem'}{more}"


def puts(world: AmqpWorld, town: Town, more: str) -> None:
    with omq.connect(url(world, town, more), timeout_s=WAIT_S) as remote:
        remote.put("A", b"x")


def reload(world: AmqpWorld) -> None:
    before = len(world.events(1004))
    world.children[SERVER].signal(signal.SIGHUP)
    until(lambda: len(world.events(1004)) > before)


PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def test_a_certificate_says_who_it_is(world: AmqpWorld, town: Town) -> None:
    puts(world, town, town.client("daemon"))
    assert len(world.left("A")) == 1
    with pytest.raises(RemoteLost):
        puts(world, town, "")  # nobody


def test_the_certificate_is_exchanged_without_a_restart(world: AmqpWorld, town: Town) -> None:
    more = town.client("daemon")
    with omq.connect(url(world, town, more), timeout_s=WAIT_S) as before:
        for names, ca, until in ((("localhost",), trustme.CA(), None), (("elsewhere",), None, None),
                                 (("localhost",), None, PAST)):
            town.own(*names, ca=ca, until=until)
            reload(world)
            with pytest.raises(RemoteLost, match=r"(?i)certificate"):
                puts(world, town, more)
        before.put("A", b"its handshake was before that")
        town.own("localhost")
        reload(world)
        puts(world, town, more)
    assert len(world.left("A")) == 2


def test_an_expired_certificate_of_a_client(world: AmqpWorld, town: Town) -> None:
    with pytest.raises(RemoteLost):
        puts(world, town, town.client("daemon", until=PAST))


def test_a_revoked_certificate_of_a_client(world: AmqpWorld, town: Town) -> None:
    more = town.client("daemon")
    puts(world, town, more)
    revoked = x509.load_pem_x509_certificates((town.folder / "daemon.pem").read_bytes())[0]
    now = datetime.datetime.now(datetime.UTC)
    key = serialization.load_pem_private_key(town.ca.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    row = x509.RevokedCertificateBuilder().serial_number(revoked.serial_number).revocation_date(now)
    crl = (x509.CertificateRevocationListBuilder().issuer_name(revoked.issuer).last_update(now)
           .next_update(now + datetime.timedelta(days=1)).add_revoked_certificate(row.build())
           .sign(key, hashes.SHA256()))
    authorities = town.folder / "clients.pem"
    authorities.write_bytes(authorities.read_bytes() + crl.public_bytes(serialization.Encoding.PEM))
    reload(world)
    with pytest.raises(RemoteLost):
        puts(world, town, more)
    puts(world, town, town.client("daemon"))
    assert len(world.left("A")) == 2
