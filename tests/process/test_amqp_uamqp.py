"""amqp.server with uAMQP, a client in C that nobody of Proton wrote, over TLS with a password."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.process.amqp_world import PASSWORD, amqp_world, needs_proton

needs_proton()

CLIENT = Path(__file__).with_name("uamqp_client.py")
PYTHON = "/usr/bin/python3"
WAIT_S = 120


def installed() -> bool:
    try:
        return not subprocess.run([PYTHON, "-c", "import uamqp"], check=False,
                                  capture_output=True).returncode
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not installed(), reason="no uAMQP: apt-get install python3-uamqp")
def test_uamqp_sends_and_receives(tmp_path: Path) -> None:
    import trustme

    ca = trustme.CA()
    made, own = ca.issue_cert("localhost"), tmp_path / "own.pem"
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    own.write_bytes(made.private_key_pem.bytes() + made.cert_chain_pems[0].bytes())
    own.chmod(0o600)
    with amqp_world(tmp_path) as world:
        world.stop("amqp.server")
        world.amqp(amqps_listen_port=0, amqp_tls_certificate=own, amqp_anonymous_user="",
                   amqp_users=world.users("daemon"))
        told = subprocess.run(
            [PYTHON, str(CLIENT), str(world.await_port("amqps.port")), str(tmp_path / "ca.pem"),
             "daemon", PASSWORD], capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert (told.returncode, told.stdout) == (0, "all of them\n"), told.stdout + told.stderr
        assert world.left("A") == [] and not world.events(1007)
