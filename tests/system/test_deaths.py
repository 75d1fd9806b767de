"""Daemons that die, hang, loop or find a wrong configuration: what restarts, and what is left."""

from __future__ import annotations

import pytest

from tests.system.box import Box
from tests.system.work import CORE, MAIL, depths, pids, put, start, states

ALL = (*CORE, *MAIL)
DROP_IN = "/etc/systemd/system/{}.service.d/test.conf"


@pytest.fixture(scope="module")
def running(installed: Box) -> Box:
    assert set(installed.show_each(_units(ALL), "RestartUSec")) == {"1s"}
    for unit in ALL:  # as shipped, but without the second of rest
        installed.write(f"/etc/systemd/system/{unit}.service.d/soon.conf",
                        "[Service]\nRestartSec=100ms\n")
    start(installed)
    put(installed, 0, 20)
    return installed


def _units(units: tuple[str, ...]) -> list[str]:
    return [f"{unit}.service" for unit in units]


def _ends_well(box: Box) -> None:
    box.wait("all to be active", lambda: states(box, ALL) == {"active"})
    assert depths(box) == {"ORDERS": 20, "AUDIT": 0, "POISON": 0}
    assert "aborted" not in box.run("omstat", "-a", code=None)


def _kill(box: Box, victims: tuple[str, ...]) -> None:
    """At once; when it returns all are there again, the victims as new processes."""
    box.run("systemctl", "reset-failed", *_units(ALL))
    before = pids(box, ALL)
    box.run("kill", "-KILL", *(before[victim] for victim in victims))
    box.wait("other processes", lambda: not {0, *(before[each] for each in victims)}
             & {pids(box, ALL)[each] for each in victims})
    box.wait("them to be ready", lambda: states(box, ALL) == {"active"})
    after = pids(box, ALL)
    assert {unit for unit in ALL if after[unit] != before[unit]} == set(victims)


@pytest.mark.parametrize("victim", ALL)
def test_only_the_killed_daemon_starts_again(running: Box, victim: str) -> None:
    _kill(running, (victim,))
    assert running.show(f"{victim}.service", "NRestarts") == "1"


def test_nothing_was_lost_by_all_that(running: Box) -> None:
    _ends_well(running)


@pytest.mark.parametrize("victims", [("omq-queue-manager", "omq-pool-writer", "omq-router"), ALL])
def test_daemons_that_die_with_the_manager_wait_for_the_next(
    running: Box, victims: tuple[str, ...]
) -> None:
    _kill(running, victims)
    _ends_well(running)


def test_daemons_survive_a_manager_that_is_late(running: Box) -> None:
    """Longer than a starting daemon waits: it gives up, and is started again until it is there."""
    running.write(DROP_IN.format("omq-queue-manager"), "[Service]\nRestartSec=25\n")
    running.run("systemctl", "daemon-reload")
    _kill(running, ("omq-queue-manager", "omq-pool-writer", "omq-router"))
    assert int(running.show("omq-pool-writer.service", "NRestarts")) >= 2
    running.run("rm", DROP_IN.format("omq-queue-manager"))
    running.run("systemctl", "daemon-reload")
    _ends_well(running)


def test_mail_flows_after_all_that(running: Box) -> None:
    running.sh("printf 'Subject: x\\n\\nafter all that\\n' | omsend -t -f a@localhost "
               "alice@localhost")
    running.wait("the mail in its Maildir", lambda: running.sh(
        "grep -l 'after all that' /var/lib/omq/mail/alice/new/* 2>/dev/null | grep -c . || true"
        ).strip() == "1")


def test_a_manager_that_hangs_is_aborted_and_says_where(running: Box) -> None:
    unit = "omq-queue-manager.service"
    running.write(DROP_IN.format("omq-queue-manager"), "[Service]\nWatchdogSec=5\n")
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "restart", unit)
    before = running.pid(unit)
    running.kill("STOP", before)
    running.wait("another one", lambda: running.pid(unit) not in (0, before))
    running.wait("its last words, from the next one", lambda: any(
        "Fatal Python error: Aborted" in text for text in running.messages("-u", unit)))
    stack = running.run("cat", "/var/lib/omq/logs/qmgr.stack")
    assert "Fatal Python error: Aborted" in stack and "queue_manager.py" in stack
    running.run("rm", DROP_IN.format("omq-queue-manager"))
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "restart", unit)
    _ends_well(running)


def test_a_wrong_configuration_does_not_loop(running: Box) -> None:
    before = pids(running, ALL)
    restarts = int(running.show("omq-router.service", "NRestarts"))  # of the tests before this one
    good = running.run("cat", "/etc/omq/omq.conf")
    running.write("/etc/omq/omq.conf", good + "[mail]\nhostname = a b\n")
    running.kill("KILL", before["omq-router"])
    running.wait("it to be given up",
                 lambda: running.active("omq-router.service") == "failed")
    assert running.show("omq-router.service", "ExecMainStatus") == "78"
    assert int(running.show("omq-router.service", "NRestarts")) - restarts in (1, 2)
    others = tuple(unit for unit in ALL if unit != "omq-router")
    assert pids(running, others) == {unit: before[unit] for unit in others}
    assert "aborted" in running.run("sh", "-c", "cp /etc/omq/omq.conf /tmp/x; omstat -s", code=1)
    running.write("/etc/omq/omq.conf", good)
    assert "Service Router: Started" in running.run("omon", "router")
    _ends_well(running)


def test_a_crash_loop_ends_and_touches_nobody(running: Box) -> None:
    before = pids(running, ALL)
    good = running.run("cat", "/etc/omq/omq.conf")
    running.run("systemd-run", "--unit=busy", "--socket-property=ListenStream=127.0.0.1:2599",
                "/bin/true")  # systemd itself has the port now
    running.write("/etc/omq/omq.conf", good + "[mail]\nsmtp_listen_port = 2599\n")
    assert running.show("omq-smtp.service", "StartLimitBurst") == "10"
    running.write(DROP_IN.format("omq-smtp"), "[Unit]\nStartLimitBurst=4\n")
    running.run("systemctl", "daemon-reload")
    running.kill("KILL", before["omq-smtp"])
    running.wait("the start limit", lambda: running.active("omq-smtp.service") == "failed"
                 and running.show("omq-smtp.service", "Result") in ("exit-code", "start-limit-hit"))
    others = tuple(unit for unit in ALL if unit != "omq-smtp")
    assert pids(running, others) == {unit: before[unit] for unit in others}
    assert "too quickly" in " ".join(running.messages("_PID=1", "-n", "200")) or running.run(
        "systemctl", "start", "omq-smtp.service", code=1)
    running.run("systemctl", "stop", "busy.socket")
    running.run("rm", DROP_IN.format("omq-smtp"))
    running.write("/etc/omq/omq.conf", good)
    running.run("systemctl", "daemon-reload")
    assert "SMTP Server: Started" in running.run("omon", "smtp")
    _ends_well(running)


def test_a_manager_with_a_wrong_configuration_is_told_at_once(running: Box) -> None:
    conf = running.run("cat", "/etc/omq/omq.conf")
    running.write("/etc/omq/omq.conf", conf + "[mail]\nhostname = a b\n")
    running.run("systemctl", "stop", "omq.target")  # no reason not to stop in order
    assert any("pool stopped" in text for text in
               running.messages("-u", "omq-drain.service", "-n", "5"))
    running.write("/etc/omq/omq.conf", conf)
    running.run("systemctl", "reset-failed", *_units(ALL))
    good = running.run("cat", "/etc/omq/queues.conf")
    running.write("/etc/omq/queues.conf", "[orders]\n")
    running.run("systemctl", "start", "omq.target")  # as at a boot: each is tried once
    assert states(running, ALL) == {"failed"}
    assert set(running.show_each(_units(ALL), "NRestarts")) == {"0"}
    found = running.show_each(_units(ALL), "ExecMainStatus")
    assert found == ["78", *["66"] * (len(ALL) - 1)]
    assert "omq-queue-manager.service" in running.run("omrc", code=69)
    assert running.active("omq-queue-manager.service") == "failed"
    running.write("/etc/omq/queues.conf", good)
    assert "are started" in running.run("omrc")
    _ends_well(running)


def test_a_kernel_limit_that_is_too_low_is_named(running: Box) -> None:
    running.run("systemctl", "stop", "omq.target")
    running.run("sysctl", "-w", "kernel.msgmnb=16384")
    assert "failed" in running.run("omrc", code=69)
    assert "kernel.msgmnb is 16384" in " ".join(
        running.messages("-u", "omq-queue-manager.service", "-n", "20"))
    assert running.show("omq-queue-manager.service", "ExecMainStatus") == "78"
    running.sh("/lib/systemd/systemd-sysctl /etc/sysctl.d/60-omq.conf")
    running.run("omrc")
    _ends_well(running)
