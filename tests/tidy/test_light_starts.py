"""Clients and services start without numpy, which is more than half of their start and memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = ("omq", "omq.services.supervisor", "omq.services.router", "omq.services.local_delivery",
         "omq.services.unix_out", "omq.services.error_manager", "omq.services.smtp_server",
         "omq.services.idel_server", "omq.services.reader_process")


@pytest.mark.parametrize("module", LIGHT)
def test_no_numpy(module: str) -> None:
    program = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
