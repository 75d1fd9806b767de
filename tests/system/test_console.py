"""The console as systemd runs it: started by the first who comes, with few rights, and there when
the instance is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.system.box import PREFIX, Box
from tests.system.conftest import CONF
from tests.system.work import PYTHON, put

PASSWORD = "a long password"
SOCKET, SERVICE = "omq-web.socket", "omq-web.service"
_VISIT = """\
import http.client, json, re, sys, urllib.parse
def ask(method, path, body=None, **more):
    line = http.client.HTTPConnection("127.0.0.1", 9816, timeout=100)
    line.request(method, path, body, {"Content-Type": "application/x-www-form-urlencoded", **more})
    answer = line.getresponse()
    return answer, answer.read().decode()
user, password, *paths = sys.argv[1:]
answer, _ = ask("POST", "/login", urllib.parse.urlencode({"user": user, "password": password}))
found = {"/login": [answer.status, ""]}
cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
for path in paths:
    answer, text = ask("GET", path, Cookie=cookie)
    found[path] = [answer.status, text]
csrf = re.search('name="csrf" value="([^"]+)"', text)
if csrf:
    answer, text = ask("POST", "/queues/ORDERS/inhibit", urllib.parse.urlencode(
        {"csrf": csrf[1], "what": "hold", "reason": "a try"}), Cookie=cookie)
    found["hold"] = [answer.status, text]
print(json.dumps(found))
"""


def visit(box: Box, *paths: str, user: str = "bin") -> Any:
    """Log in and get pages; (status, text) by path. Then a queue is held."""
    return json.loads(box.run(PYTHON, "-c", _VISIT, user, PASSWORD, *paths))


@pytest.fixture(scope="module")
def box(installed: Box) -> Box:
    made = installed
    made.sh(f"echo '{PASSWORD}' | {PREFIX}/bin/omq-web --password bin >/etc/omq/web.users;"
            " chown omq: /etc/omq/web.users; chmod 640 /etc/omq/web.users")
    made.write("/etc/omq/omq.conf", CONF + "[web]\nweb_users = /etc/omq/web.users\n")
    made.write("/etc/omq/authority.conf", "[console]\nuser:bin = operate\n"
               "[ORDERS]\nuser:bin = admin browse\n")
    made.run("systemctl", "start", "omq-queue-manager")
    made.run("systemctl", "enable", "--now", SOCKET)
    return made


def test_the_first_who_comes_starts_it(box: Box) -> None:
    put(box, 0, 3)
    assert (box.active(SOCKET), box.active(SERVICE)) == ("active", "inactive")
    found = visit(box, "/", "/queues/ORDERS/messages", "/queues/ORDERS")
    assert [found[path][0] for path in ("/login", "/", "/queues/ORDERS/messages")] == [
        303, 200, 200]
    assert ">works<" in found["/"][1]
    assert found["/queues/ORDERS/messages"][1].count('href="/messages/') == 3
    assert box.active(SERVICE) == "active"


def test_it_has_few_rights(box: Box) -> None:
    lines = box.run("cat", f"/proc/{box.pid(SERVICE)}/status").splitlines()
    status = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    assert int(status["Uid"][0]) == int(box.run("id", "-u", "omq"))
    assert set(status["CapEff"] + status["CapPrm"] + status["CapBnd"]) == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])
    space = f"nsenter --target {box.pid(SERVICE)} --mount"
    for path in ("/etc/omq/omq.conf", "/var/x", "/root/x", "/opt/x"):
        assert box.sh(f"{space} sh -c ': >>{path}'", code=None) != "", path
    assert box.show(SERVICE, "IPAddressDeny") != ""
    assert box.show(SERVICE, "MemoryMax") == str(1 << 30)


def test_what_the_unit_may_not_write_is_told(box: Box) -> None:
    """A queue of queues.conf is held by writing there, which needs a drop-in (CONSOLE.md)."""
    status, text = visit(box, "/queues/ORDERS")["hold"]
    assert status >= 400 and "queues.conf" in text
    box.write(f"/etc/systemd/system/{SERVICE}.d/conf.conf", "[Service]\nReadWritePaths=/etc/omq\n")
    box.sh("chown omq /etc/omq /etc/omq/queues.conf; systemctl daemon-reload")
    box.run("systemctl", "restart", SERVICE)
    status, text = visit(box, "/queues/ORDERS")["hold"]
    assert status == 303, text
    assert "suspended" in box.run("cat", "/etc/omq/queues.conf") or ">held" in visit(
        box, "/queues/ORDERS")["/queues/ORDERS"][1]


def test_it_comes_again_after_a_death_and_tells_of_a_stopped_instance(box: Box) -> None:
    first = box.pid(SERVICE)
    box.kill("KILL", first)
    box.wait("another process", lambda: box.pid(SERVICE) not in (0, first))
    box.run("systemctl", "stop", "omq-queue-manager")

    def told() -> bool:
        status, text = visit(box, "/")["/"]
        assert status == 200, text
        return ">does not run<" in text  # figures are a moment old

    box.wait("it to be told", told)
    box.run("systemctl", "stop", SOCKET, SERVICE)
    assert box.active(SERVICE) == "inactive"
