"""amqp.server with rhea, a client for node that nobody of Proton wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.process.amqp_world import amqp_world, needs_proton

needs_proton()

CLIENT = Path(__file__).with_name("rhea_client.js")
WAIT_S = 120


@pytest.mark.skipif(shutil.which("node") is None or "OMQ_RHEA" not in os.environ,
                    reason="rhea, a client of AMQP for node: OMQ_RHEA is not set")
@pytest.mark.parametrize("user", [(), ("nobody",)], ids=["without SASL", "ANONYMOUS"])
def test_rhea_sends_and_receives(tmp_path: Path, user: tuple[str, ...]) -> None:
    with amqp_world(tmp_path) as world:
        told = subprocess.run(
            ["node", str(CLIENT), str(world.await_port()), *user], capture_output=True, text=True,
            timeout=WAIT_S, check=False)
        assert (told.returncode, told.stdout) == (0, "all of them\n"), told
        assert world.left("A") == [] and not world.events(1590)
