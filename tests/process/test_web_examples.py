"""The examples of Django and FastAPI as servers of their own: what was answered is on the queue,
also when the queue manager was away, and nothing is there twice."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.instance import MANAGER, Instance
from tests.process.processes import WAIT_S
from tests.process.task_workers import until
from tests.process.test_examples import LINES, ROOT, SPOOL

QUEUES = "[*]\n\n[ORDERS]\nmax_depth = 1\n\n[AUDIT]\n"
PORT = "8000"  # in the documents


@pytest.fixture
def running(omq_instance: Instance) -> Instance:
    omq_instance.queues(QUEUES)
    omq_instance.start()
    omq_instance.ready()
    return omq_instance


def example(instance: Instance, folder: Path, name: str) -> Path:
    """A copy for this instance's spool."""
    made = shutil.copytree(ROOT / "examples" / name, folder / name)
    (file,) = made.glob("*.py")
    text = file.read_text(encoding="utf-8")
    assert text.count(SPOOL) == 1
    file.write_text(text.replace(SPOOL, str(instance.root)), encoding="utf-8")
    return made


def command(line: str, folder: Path, port: int) -> list[str]:
    """A server's line of the documents, at this port."""
    word, *words = line.split()
    assert PORT in line
    program = sys.executable if word == "python" else str(Path(sys.executable).parent / word)
    return [program, *(each.replace(PORT, str(port)) for each in words)]


@contextmanager
def served(instance: Instance, line: str, folder: Path) -> Iterator[str]:
    """The URL of its orders."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = instance.root.parent / "worker.log"
    with log.open("ab") as output, subprocess.Popen(
            command(line, folder, port), cwd=folder, stdout=output, stderr=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1"}) as server:
        try:
            until(lambda: server.poll() is not None or accepts(port), instance)
            assert server.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}/orders"
        finally:
            server.terminate()
            server.wait(WAIT_S)


def accepts(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def post(url: str, body: bytes, kind: str) -> dict[str, object]:
    asked = urllib.request.Request(url, body, {"Content-Type": kind})
    with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
        return dict(json.load(answer))


def test_an_order_of_django_and_its_message(running: Instance, tmp_path: Path) -> None:
    """The manager is killed between two orders: both are taken, and a relay puts what waits. A
    second one, which finds the row of a death behind the put, puts nothing twice."""
    pytest.importorskip("django", reason="the extra `dev` is not installed")
    line, curl = LINES[3]
    assert "customer=42" in curl and PORT in curl
    folder = example(running, tmp_path, "django")

    def order(url: str) -> None:
        post(url, b"customer=42", "application/x-www-form-urlencoded")

    def relay(also: str = "") -> None:
        code = "import runpy, sys; sys.argv = ['shop.py', 'relay']; {}runpy.run_path(" \
            "'shop.py', run_name='__main__')"
        subprocess.run([sys.executable, "-c", code.format(also)], cwd=folder, check=True,
                       timeout=WAIT_S, capture_output=True)

    with served(running, line, folder) as url:
        order(url)
        running.kill(MANAGER)
        order(url)
    running.start(MANAGER)
    running.ready()
    with running.connect() as connection:
        assert connection.queues.show("RECEIPTS").messages == 1
    # It dies when the message is on the disk, and its row still there.
    with pytest.raises(subprocess.CalledProcessError):
        relay("import omq, os; put = omq.Connection.put; omq.Connection.put = "
              "lambda *a, **k: (put(*a, **k), os._exit(9)); ")
    relay()
    relay()
    found = [json.loads(each.body) for each in running.drain("RECEIPTS")]
    assert found == [{"order": 1, "customer": "42"}, {"order": 2, "customer": "42"}]


def test_an_order_of_fastapi_is_on_the_disk_before_the_answer(running: Instance, tmp_path: Path
                                                              ) -> None:
    """What follows the answer comes, too; who is refused is told to try again."""
    pytest.importorskip("fastapi", reason="the extra `dev` is not installed")
    line, curl = LINES[4]
    assert '{"customer": "42"}' in curl and PORT in curl
    body, kind = b'{"customer": "42"}', "application/json"
    with served(running, line, example(running, tmp_path, "fastapi")) as url, \
            running.connect() as connection:
        number = post(url, body, kind)["order"]
        assert [row.message_id for row in connection.browse("ORDERS")] == [number]
        until(lambda: connection.queues.show("AUDIT").messages == 1, running)
        with pytest.raises(urllib.error.HTTPError, match="422") as refused:
            post(url, b"{}", kind)
        refused.value.close()
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            post(url, body, kind)
        assert refused.value.headers["Retry-After"]
        refused.value.close()
    (order,) = running.drain("ORDERS")
    assert json.loads(order.body) == {"customer": "42", "pieces": 1}
    assert [each.body for each in running.drain("AUDIT")] == [b"an order of 42"]
