"""Instances side by side: what each action does to each of them, and leaves of the others.

The table is INSTANCES x the tests below: set-up (twice), enabling, ports, start, upgrade (set up
again), a drain that fails, services that are off, stop, removal.
"""

from __future__ import annotations

import pytest

from tests.system.box import PREFIX, Box
from tests.system.conftest import CONF, QUEUES
from tests.system.work import CORE, MAIL

OMQ = f"{PREFIX}/bin/omq"
UNITS = "/etc/systemd/system"
INSTANCES = ("", "test", "a-b")
PORTS = {"": 2525, "test": 2526, "a-b": 2527}


def _base(instance: str) -> str:
    return f"omq-{instance}" if instance else "omq"


def _words(instance: str) -> tuple[str, ...]:
    return ("--instance", instance) if instance else ()


def _units(instance: str) -> list[str]:
    return [f"{unit.replace('omq', _base(instance), 1)}.service" for unit in (*CORE, *MAIL)]


def _others(instance: str) -> list[str]:
    return [other for other in INSTANCES if other != instance]


def _state(box: Box, instance: str) -> dict[str, list[str]]:
    """What a neighbour's actions must not touch: pids, states, timers, enabling, files."""
    base, units = _base(instance), _units(instance)
    timers = [f"{base}-archive.timer", f"{base}-check.timer"]
    return {
        "pids": box.show_each(units, "MainPID"),
        "states": box.show_each([f"{base}.target", *units, *timers], "ActiveState"),
        "enabled": box.show_each([f"{base}.target", *units, *timers], "UnitFileState"),
        "files": box.sh(f"ls -l --time-style=full-iso /etc/{base} /etc/sysctl.d/60-{base}.conf"
                        f" {UNITS}/{base}.target").splitlines(),
    }


@pytest.fixture(scope="module")
def box(machine: Box) -> Box:
    for instance in INSTANCES:
        machine.run(OMQ, "setup", *_words(instance))
        base = _base(instance)
        text = CONF if not instance else CONF + f"[mail]\nsmtp_listen_port = {PORTS[instance]}\n"
        first = machine.run("cat", f"/etc/{base}/omq.conf")
        assert (f"smtp_listen_port = {PORTS[instance]}" in first) == bool(instance)
        machine.write(f"/etc/{base}/omq.conf", text)
        machine.write(f"/etc/{base}/queues.conf", QUEUES)
        machine.run("omrc", *_words(instance))
    return machine


@pytest.mark.parametrize("instance", INSTANCES)
def test_it_runs_and_comes_up_with_the_machine(box: Box, instance: str) -> None:
    state = _state(box, instance)
    assert set(state["states"]) == {"active"}
    assert set(state["enabled"]) == {"enabled"}
    assert "0" not in state["pids"]
    port = box.run("cat", f"/var/lib/{_base(instance)}/run/smtp.port").split()[1]
    assert int(port) == PORTS[instance]
    assert box.show(f"{_base(instance)}-smtp.service", "Slice").startswith("system-omq")
    assert box.show(f"{_base(instance)}-local.service", "TasksMax") == "256"


@pytest.mark.parametrize("instance", INSTANCES)
def test_set_up_twice_changes_nothing(box: Box, instance: str) -> None:
    before = {each: _state(box, each) for each in INSTANCES}
    assert "0 of" in box.run(OMQ, "setup", *_words(instance))
    assert {each: _state(box, each) for each in INSTANCES} == before


@pytest.mark.parametrize("instance", INSTANCES)
def test_an_upgrade_rewrites_its_units_alone(box: Box, instance: str) -> None:
    """As of another version: stamped, and with other text."""
    before = {each: _state(box, each) for each in _others(instance)}
    path = f"{UNITS}/{_base(instance)}-idel.service"
    box.sh(f"f={path}; t=$(tail -n +2 $f | sed s/RestartSec=1/RestartSec=2/; echo .); t=${{t%.}};"
           " d=$(printf %s \"$t\" | sha256sum | cut -d' ' -f1);"
           " printf '# Written by omq setup 0.0.1; sha256 %s of what follows.\\n%s' $d \"$t\" > $f")
    assert "1 of" in box.run(OMQ, "setup", *_words(instance))
    assert "RestartSec=1\n" in box.run("cat", path)
    assert {each: _state(box, each) for each in _others(instance)} == before


@pytest.mark.parametrize("instance", INSTANCES)
def test_a_service_that_is_off_stays_off(box: Box, instance: str) -> None:
    base = _base(instance)
    before = {each: _state(box, each) for each in _others(instance)}
    box.run("omoff", *_words(instance), "smtp")
    box.run("systemctl", "restart", f"{base}.target")
    assert box.active(f"{base}-smtp.service") == "inactive"
    assert f"{base}-smtp.service has been turned off and stays off" in box.run(
        OMQ, "setup", *_words(instance))
    assert box.active(f"{base}-local.service") == "active"
    box.run("omon", *_words(instance), "smtp")
    box.run("omoff", *_words(instance), "smtp")
    box.run("omrc", *_words(instance))
    assert box.active(f"{base}-smtp.service") == "active"
    assert box.show(f"{base}-smtp.service", "UnitFileState") == "enabled"
    assert {each: _state(box, each) for each in _others(instance)} == before


@pytest.mark.parametrize("instance", INSTANCES)
def test_a_drain_that_fails_is_systemctls_own_failure(box: Box, instance: str) -> None:
    base = _base(instance)
    before = {each: _state(box, each) for each in _others(instance)}
    path = f"{UNITS}/{base}-drain.service.d/bad.conf"
    box.write(path, "[Service]\nExecStop=\nExecStop=/bin/sh -c 'echo drain of old; exit 69'\n")
    box.run("systemctl", "daemon-reload")
    said = box.run("systemctl", "stop", f"{base}.target", code=1)
    assert f"Job for {base}.target canceled" in said
    box.wait("the members are down all the same",
             lambda: set(box.show_each(_units(instance), "ActiveState")) <= {"inactive", "failed"})
    box.wait("so is the target", lambda: box.active(f"{base}.target") == "inactive")
    box.wait("it has failed", lambda: box.active(f"{base}-drain.service") == "failed")
    box.run("systemctl", "start", f"{base}.target")
    box.wait("its drain is up, behind it", lambda: box.active(f"{base}-drain.service") == "active")
    box.run("systemctl", "restart", f"{base}.target", code=1)
    box.sh(f"rm -r {UNITS}/{base}-drain.service.d; systemctl daemon-reload")
    box.wait("what was being restarted", lambda: box.sh("systemctl list-jobs --no-legend") == "")
    assert "are started" in box.run("omrc", *_words(instance))
    box.run("systemctl", "stop", f"{base}.target")
    box.run("systemctl", "start", f"{base}.target")
    assert set(box.show_each(_units(instance), "ActiveState")) == {"active"}
    assert {each: _state(box, each) for each in _others(instance)} == before


@pytest.mark.parametrize("instance", INSTANCES)
def test_a_port_that_another_has_is_told_in_words(box: Box, instance: str) -> None:
    base, other = _base(instance), _others(instance)[0]
    good = box.run("cat", f"/etc/{base}/omq.conf")
    box.write(f"/etc/{base}/omq.conf", CONF + f"[mail]\nsmtp_listen_port = {PORTS[other]}\n")
    said = box.run(OMQ, "setup", *_words(instance))
    assert f"smtp_listen_port {PORTS[other]} is also that of {_base(other)}.target" in said
    assert f"/etc/{base}/omq.conf" in said
    box.run("systemctl", "restart", f"{base}-smtp.service", code=1)
    told = " ".join(box.messages("-u", f"{base}-smtp.service", "-n", "20"))
    assert f"port {PORTS[other]}" in told and "smtp_listen_port" in told, told
    box.write(f"/etc/{base}/omq.conf", good)
    box.run("omon", *_words(instance), "smtp")


@pytest.mark.parametrize("instance", ["test", "", "a-b"])
def test_a_removal_touches_nothing_of_the_others(box: Box, instance: str) -> None:
    base = _base(instance)
    left = [each for each in INSTANCES
            if each != instance and box.active(f"{_base(each)}.target") == "active"]
    before = {each: _state(box, each) for each in left}
    said = box.run(OMQ, "setup", *_words(instance), "--remove")
    assert f"the spool /var/lib/{base}, the configuration /etc/{base}" in said
    assert {each: _state(box, each) for each in left} == before
    assert box.sh(f"ls {UNITS} /etc/sysctl.d /etc/logrotate.d"
                  f" | grep -cE '^(60-)?{base}([.]|-(archive|idel|smtp))' || true").strip() == "0"
    box.run("test", "-s", f"/var/lib/{base}/instance.json")
    commands = box.sh("test -L /usr/local/bin/omstat && echo there || echo gone").strip()
    assert commands == ("there" if left else "gone")
