"""The client's side of the fast path: compiled and interpreted do the same, with right replies and
with nonsense; and what they make is what ipc.wire.outgoing and format.message make."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from omq.base import form
from tests.forms.running import ROOT

ROUNDS = "150"
compiled = pytest.mark.skipif(form.build() is None,
                              reason="no C compiler: apt-get install gcc python3-dev")


def _run(running: str, seed: str) -> list[str]:
    environment = os.environ | {form.VARIABLE: running, "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, "-m", "tests.forms.client_work", seed, ROUNDS], cwd=ROOT,
                          env=environment, text=True, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.split()[-1] == running
    return done.stdout.splitlines()


@compiled
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_both_forms_do_the_same(seed: str) -> None:
    one, other = _run(form.COMPILED, seed), _run(form.INTERPRETED, seed)
    assert len(one) == 6 * int(ROUNDS)
    assert [line for line in zip(one, other, strict=True) if line[0] != line[1]] == []


def test_a_wrong_form_does_not_keep_clients_away() -> None:
    """The manager refuses it; a client says so through it."""
    done = subprocess.run(
        [sys.executable, "-c", "import omq.ipc.client.connection, omq.fast; print(omq.fast.FORM)"],
        env=os.environ | {form.VARIABLE: "sideways"}, text=True, check=True, capture_output=True)
    assert done.stdout.strip() == form.INTERPRETED


def test_clients_import_no_engine() -> None:
    """Neither the engine nor numpy comes with the client's modules of the fast path."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, omq.ipc.client.connection; "
         "print([name for name in sys.modules if name.startswith(('omq.core', 'numpy'))])"],
        text=True, check=True, capture_output=True)
    assert done.stdout.strip() == "[]"
