"""pika's and py-amqp's own tests that need a server of AMQP 0-9-1, at amqp.server and at RabbitMQ:

    python -m tests.bench.amqp091_their_tests FOLDER [TESTS...]     (make setup-peers)

FOLDER is a clone of pika's repository or an unpacked source distribution of amqp; TESTS are files
in it, as pytest takes them (unless they are given those of pika's blocking adapter, and py-amqp's
`test_rmq.py`). They are run as they are; OUR_PLUGIN alone tells them where the server is and who
they are, for guest at port 5672 is written into them. Printed is a line for each that does not
pass at both, and counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.peers.rabbit import RabbitPeer
from tests.process.amqp_world import PASSWORD, SERVER, amqp_world
from tests.process.instance import MANAGER

AUTHORITY: Final = "[*]\nuser:daemon = put get browse admin\n"
TESTS: Final = {"amqp": ("t/integration/test_rmq.py",),
                "pika": ("tests/acceptance/blocking_adapter_test.py",)}
TEST_S: Final = 60
OUR_PLUGIN: Final = '''
import os, signal, pytest

HOST, PORT = "127.0.0.1", int(os.environ["THEIR_PORT"])
USER, PASSWORD = os.environ["THEIR_USER"], os.environ["THEIR_PASSWORD"]
try:
    import amqp
    _made = amqp.Connection.__init__
    def made(self, *args, userid=USER, password=PASSWORD, **more):
        _made(self, *args, userid=userid, password=password, **more)
    amqp.Connection.__init__ = made
except ImportError:
    pass
try:
    import pika
    def pointed(kind):
        before = kind.__init__
        def made(self, *args, **more):
            before(self, *args, **more)
            if self.port == 5672 and self.host in ("localhost", "127.0.0.1"):
                self.host, self.port = HOST, PORT
            if self.credentials == pika.PlainCredentials("guest", "guest"):
                self.credentials = pika.PlainCredentials(USER, PASSWORD)
        kind.__init__ = made
    pointed(pika.ConnectionParameters)
    pointed(pika.URLParameters)
except ImportError:
    pass

def pytest_configure(config):
    config.addinivalue_line("markers", "flaky(reruns, reruns_delay)")
    config.addinivalue_line("markers", "env(name)")

def pytest_collection_modifyitems(items):
    """Not those of a server elsewhere, nor of certificates that are not in their distribution."""
    items[:] = [each for each in items if "tls" not in each.nodeid]

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    def late(*_):
        raise TimeoutError("it hangs")
    signal.signal(signal.SIGALRM, late)
    signal.alarm(int(os.environ["THEIR_SECONDS"]))
    yield
    signal.alarm(0)
'''


@contextmanager
def ours(folder: Path) -> Iterator[tuple[int, str, str]]:
    """Port, user and password of amqp.server."""
    with amqp_world(folder) as world:
        (world.conf / "authority.conf").write_text(AUTHORITY)
        world.stop(SERVER, MANAGER)
        world.start(MANAGER)
        world.ready()
        world.amqp(amqp_users=world.users("daemon"), amqp_anonymous_user="")
        yield world.await_port(), "daemon", PASSWORD


@contextmanager
def theirs(folder: Path) -> Iterator[tuple[int, str, str]]:
    """Those of RabbitMQ."""
    peer = RabbitPeer(folder)
    try:
        peer.start()
        yield peer.port, "guest", "guest"
    finally:
        peer.stop()


def run(source: Path, tests: list[str], place: tuple[int, str, str], folder: Path
        ) -> dict[str, str]:
    """What became of each test: passed, skipped, or the first line of what went wrong."""
    (folder / "our_plugin.py").write_text(OUR_PLUGIN)
    report = folder / "report.xml"
    port, user, password = place
    environment = {
        **os.environ, "THEIR_PORT": str(port), "THEIR_USER": user, "THEIR_PASSWORD": password,
        "THEIR_SECONDS": str(TEST_S), "RABBITMQ_HOST": "127.0.0.1", "RABBITMQ_5672_TCP": str(port),
        "PYTHONPATH": f"{folder}:{source}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-q", "-W", "ignore",
         "-p", "no:cacheprovider", "-p", "our_plugin", "-o", "python_classes=test_ *Test* Test*",
         f"--junit-xml={report}", *tests],
        cwd=source, env=environment, capture_output=True, text=True, check=False)
    if not report.exists():
        raise SystemExit(done.stdout + done.stderr)
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = next((case.find(kind) for kind in ("failure", "error")
                      if case.find(kind) is not None), None)
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        found[name] = "skipped" if case.find("skipped") is not None else "passed" if (
            wrong is None) else (wrong.get("message") or "").split("\n")[0][:160]
    return found


def main(arguments: list[str]) -> int:
    source = Path(arguments[0]).resolve()
    kind = "pika" if (source / "pika").is_dir() else "amqp"
    tests = arguments[1:] or [*TESTS[kind]]
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        results = []
        for name, server in (("omq", ours), ("rabbit", theirs)):
            (root / name).mkdir()
            with server(root / name) as place:
                results.append(run(source, tests, place, root))
    omq, rabbit = results
    for name in sorted(omq.keys() | rabbit.keys()):
        if (said := (omq.get(name, "not run"), rabbit.get(name, "not run"))) != ("passed",) * 2:
            print(f"{name}\n    omq: {said[0]}\n    RabbitMQ: {said[1]}")
    for title, found in (("omq", omq), ("RabbitMQ", rabbit)):
        print(f"{title}: {sum(each == 'passed' for each in found.values())} of {len(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
