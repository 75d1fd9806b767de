"""The production section of OPERATE.md word by word on a fresh machine."""

from __future__ import annotations

from pathlib import Path

from tests.system import operate, worker_unit
from tests.system.box import PREFIX, Box
from tests.system.work import CORE, MAIL, states

ELSEWHERE = {
    "make wheel": "fixture `wheels`: the same from a copy of the tree, with what it needs",
    "make deb": "test_debian: its whole life",
    "systemctl stop": "test_instances: a drain that fails",
    "omoff smtp": "test_instances: a service that is off",
    "omon smtp": "test_instances: a service that is off",
    "omq setup --instance test": "test_operator: two instances",
    "systemctl edit UNIT": "an editor for drop-ins; these are in test_operator",
    "systemd-analyze security": "test_setup: for every unit",
    "systemctl status": "test_replay: the line that it shows",
    "systemctl start": "the beginning of a list; the tests in test_life",
    "systemctl reload": "test_life: with a good and a bad file",
}
"""Commands in the text that another test follows."""


def test_production_section(prefix: Path, wheels: Path, tmp_path: Path) -> None:
    """Its first lines, which make /opt/omq, are what fixture `prefix` runs."""
    assert operate.NEW_PLACE.splitlines() == [
        "python3 -m venv /opt/omq", "/opt/omq/bin/pip install dist/omq_*.whl"]
    box = Box(tmp_path / "state", {prefix: PREFIX, wheels: "/srv/omq/dist"})
    followed = set()

    def follow(command: str) -> str:
        followed.add(command)
        return box.sh(command)

    try:
        said = box.sh(f"cd /srv/omq\n{operate.SETUP}{operate.SET_UP}")
        assert "all 8 services are started" in said
        assert said.count(" Started ") == 8  # omstat -a
        assert states(box, (*CORE, *MAIL)) == {"active"}
        box.sh(operate.OWN)
        box.wait("the order", lambda: "order 1" in box.sh("cat /var/lib/orders/done || true"))
        said = box.sh(operate.DAILY)
        assert "Local Delivery: Stopped" in said
        assert "Local Delivery: Started" in said
        assert "2 of 2 auxiliary readers run" in said
        assert "Auxiliary processes           = 2" in said
        assert 'command="omsetsvc -x router 2"' in said  # of the queue manager, by its field
        follow("omq conf")
        box.run("systemctl", "disable", "--now", "orders")
        box.write("/etc/omq/readers/ORDERS", "#!/bin/sh\ncat > $STATE_DIRECTORY/got\n", "755")
        follow("systemctl enable --now omq-read@ORDERS")
        box.sh("echo 'order 2' | omsend ORDERS")
        box.wait("the command", lambda: "order 2" in box.sh("cat /var/lib/omq/got || true"))
        box.run("systemctl", "disable", "--now", "omq-read@ORDERS")
        worker_unit.check(box)
        box.run("systemctl", "enable", "--now", "orders")
        assert "0 of" in follow("omq setup")  # as after an upgrade
        follow("systemctl restart omq.target")
        box.wait("the reader", lambda: box.active("orders.service") == "active")
        assert states(box, (*CORE, *MAIL)) == {"active"}
        assert "stay" in follow("omq setup --remove")
        assert box.show("orders.service", "Result") == "success"  # it was the first to stop
        box.run("pgrep", "-u", "omq", code=1)
        box.sh("test -s /var/lib/omq/instance.json; test -s /etc/omq/queues.conf; id omq")
    finally:
        box.stop(in_order=False)
    assert followed | set(ELSEWHERE) == operate.COMMANDS
