"""Clients and services start without numpy, which is more than half of their start and memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = ("omq", "omq.aio", "omq.cli.setup.omq_main", "omq.cli.queue.worker",
         "omq.tasks.kombu_transport", "omq.tasks.celery_results", "omq.tasks.dramatiq_broker",
         "omq.cli.operate.omrc", "omq.services.supervise.supervisor",
         "omq.services.mail.router", "omq.services.mail.local_delivery",
         "omq.services.mail.unix_out", "omq.services.mail.error_manager",
         "omq.services.mail.smtp_server", "omq.services.readers.idel_server",
         "omq.services.readers.process")


@pytest.mark.parametrize("module", LIGHT)
def test_no_numpy(module: str) -> None:
    program = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
