"""omq-worker@ under a real systemd: ready when it reads, a hung function is bounded, a hung worker
restarted by the watchdog, and stopped in order."""

from __future__ import annotations

from tests.system.box import Box

UNIT = "omq-worker@shipping.service"
STATE = "/var/lib/omq"
TASKS = """\
import os, time
def note(name, text):
    with open(os.environ["STATE_DIRECTORY"] + "/" + name, "a") as file:
        file.write(f"{text}\\n")
def ship(order):
    if order["id"] == 8:
        note("hangs", os.getpid())
        while True:
            try:
                time.sleep(3600)
            except BaseException:
                pass
    note("shipped", order["id"])
"""


def check(box: Box) -> None:
    """With an instance that has ORDERS, and nobody who reads it; nothing of it is left."""
    box.sh("mkdir -p /etc/omq/workers")
    box.write("/opt/orders/tasks.py", TASKS, "644")
    box.write("/etc/omq/workers/shipping", "QUEUE=ORDERS\nFUNCTION=tasks:ship\n"
              "OPTIONS=--path /opt/orders --time-limit 4 --kill-after 1\n", "644")
    box.sh(f"mkdir -p /etc/systemd/system/{UNIT}.d")
    box.write(f"/etc/systemd/system/{UNIT}.d/quick.conf",
              "[Service]\nWatchdogSec=8\nRestartSec=100ms\n", "644")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "enable", "--now", UNIT)  # returns when it is ready
    worker = box.show(UNIT, "MainPID")

    def ship(number: int) -> None:
        box.sh(f"echo '{{\"id\": {number}}}' | omsend ORDERS")

    def shipped(number: int) -> bool:
        return str(number) in box.sh(f"cat {STATE}/shipped || true").split()

    ship(7)
    box.wait("an order", lambda: shipped(7))
    ship(8)
    box.wait("the end of a function that hangs", lambda: box.sh(
        f"test -s {STATE}/hangs && ! kill -0 $(tail -1 {STATE}/hangs) 2>/dev/null && echo gone"
        " || true") == "gone\n")
    ship(9)
    box.wait("the next order", lambda: shipped(9))
    assert box.show(UNIT, "MainPID") == worker
    box.run("kill", "-STOP", worker)
    box.wait("the watchdog", lambda: int(box.show(UNIT, "NRestarts")) > 0
             and box.active(UNIT) == "active")
    ship(10)
    box.wait("an order of the next worker", lambda: shipped(10))
    box.run("systemctl", "disable", "--now", UNIT)
    assert box.show(UNIT, "Result") == "success"
