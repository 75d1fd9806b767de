"""amqp.server with Azure's clients, which nobody of Proton wrote: uAMQP, in C, over TLS with a
password; and its successor pyamqp, in Python, the one in azure-servicebus."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.amqp_world import PASSWORD, amqp_world, needs_proton

needs_proton()

CLIENT = Path(__file__).with_name("uamqp_client.py")
PYTHON = "/usr/bin/python3"
WAIT_S = 120
AZURE = "azure-servicebus==7.15.0"


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


def test_pyamqp_sends_and_receives(tmp_path: Path) -> None:
    """Fetched into a folder of its own: nothing else here needs it."""
    folder = tmp_path / "azure"
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--only-binary", ":all:", "--target",
         str(folder), AZURE], capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"{AZURE} cannot be fetched from the registry")
    with amqp_world(tmp_path) as world:
        world.stop("amqp.server")
        world.amqp(amqp_users=world.users("daemon"))
        told = subprocess.run(
            [sys.executable, str(CLIENT.with_name("pyamqp_client.py")), str(world.await_port()),
             "daemon", PASSWORD], capture_output=True, text=True, timeout=WAIT_S, check=False,
            env={**os.environ, "PYTHONPATH": str(folder)})
        assert (told.returncode, told.stdout) == (0, "all of them\n"), told.stdout + told.stderr
        assert world.left("A") == [] and not world.events(1007)
