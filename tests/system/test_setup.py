"""omq setup: what it installs, refuses and takes away, on a machine with a real systemd."""

from __future__ import annotations

import re

import pytest

from tests.system.box import PREFIX, Box

OMQ = f"{PREFIX}/bin/omq"
UNITS = "/etc/systemd/system"
FILES = ("find /etc /usr/local/bin /var/lib -name 'om*' -printf '%p %l\n';"
         " find /etc/systemd/system | sort")


def test_dry_run_changes_nothing(machine: Box) -> None:
    said = machine.run(OMQ, "setup", "--dry-run")
    assert f"new        {UNITS}/omq-queue-manager.service" in said
    assert "omq.target" in machine.sh(f"ls {UNITS} /etc/omq 2>&1 || true; echo omq.target")
    assert machine.sh(f"ls {UNITS} | grep -c omq || true").strip() == "0"


def test_refusals_leave_nothing(machine: Box) -> None:
    for script, code, word in (
        (f"setpriv --reuid=65534 --regid=65534 --clear-groups {OMQ} setup", 77, "as root"),
        (f"useradd -u 1500 late; {OMQ} setup --user late", 71, "above 999"),
        (f"{OMQ} setup --user root", 71, "must not run as root"),
        (f"echo x > {UNITS}/omq-idel.service; {OMQ} setup", 73, "was not written by omq setup"),
        (f"rm {UNITS}/omq-idel.service; echo x > /usr/local/bin/omrc; {OMQ} setup", 73, "omrc"),
        (f"rm /usr/local/bin/omrc; mkdir -p /root/env; cp -a {PREFIX}/. /root/env; sed -i"
         f" 's,{PREFIX},/root/env,g' /root/env/bin/omq; /root/env/bin/omq setup", 71, "/root"),
        ("mkdir -p /var/lib/omq; chown 1500 /var/lib/omq; " + f"{OMQ} setup", 71, "uid 1500"),
        (f"rmdir /var/lib/omq; mkdir -p /mnt/old; printf '#!/bin/sh\necho systemd 240' >"
         f" /mnt/old/systemctl; chmod +x /mnt/old/systemctl; PATH=/mnt/old:$PATH {OMQ} setup", 71,
         "version 240"),
    ):
        said = machine.sh(script, code=code)
        assert word in said, said
        assert len(said.strip().splitlines()) == 1
        assert machine.sh(f"ls {UNITS} | grep omq | grep -v idel || true") == ""


@pytest.mark.parametrize(("tool", "word", "reason"), [
    ("systemd-sysusers", "", "no space"), ("systemd-tmpfiles", "", "no space"),
    ("systemctl", "enable", "no space"), ("/proc/sys/kernel/msgmnb", "", "kernel.msgmnb is 16384"),
])
def test_a_step_that_fails_leaves_nothing(
    machine: Box, tool: str, word: str, reason: str
) -> None:
    """The last ones after the files, the user, the directories have been made."""
    before = machine.sh(FILES)
    if tool.startswith("/"):  # systemd-sysctl only warns of a key that it may not write
        machine.sh(f"sysctl -q -w kernel.msgmnb=16384; mount --bind {tool} {tool};"
                   f" mount -o remount,bind,ro {tool}")
    else:
        machine.write(f"/mnt/bad/{tool}", f'#!/bin/sh\ncase "$*" in *{word}*) echo no space >&2;'
                      f' exit 1;; esac\nexec /usr/bin/{tool} "$@"\n', "755")
    said = machine.sh(f"PATH=/mnt/bad:$PATH {OMQ} setup && echo code 0 || echo code $?")
    machine.sh(f"rm -rf /mnt/bad; mountpoint -q {tool} && umount {tool} || true")
    assert reason in said
    assert "code 0" not in said
    assert machine.sh(FILES) == before
    assert machine.sh("systemctl list-unit-files 'omq*' --no-legend || true") == ""


def test_install_is_idempotent_and_guards_edits(machine: Box) -> None:
    machine.run(OMQ, "setup")
    assert machine.sh("stat -c '%U %a' /var/lib/omq /etc/omq").split() == [
        "omq", "711", "root", "755"]
    assert machine.sh("id -nG omq").split() == ["omq", "omq-clients", "omq-operators"]
    assert int(machine.run("id", "-u", "omq")) <= 999
    assert machine.sh("cat /proc/sys/kernel/msgmnb").strip() == "4194304"
    assert "omq.target" in machine.run("systemctl", "list-unit-files", "--state=enabled")
    assert re.search(r"-> /opt/omq/bin/omstat$", machine.sh("ls -l /usr/local/bin/omstat").strip())
    assert "0 of" in machine.run(OMQ, "setup")
    machine.sh(f"sed -i s/RestartSec=1/RestartSec=9/ {UNITS}/omq-idel.service")
    said = machine.run(OMQ, "setup", code=73)
    assert "omq-idel.service has been edited" in said
    assert "RestartSec=9" in machine.sh(f"cat {UNITS}/omq-idel.service")
    machine.run(OMQ, "setup", "--force")
    assert "RestartSec=9" not in machine.sh(f"cat {UNITS}/omq-idel.service")


def test_an_older_installation_keeps_its_clients(machine: Box) -> None:
    """Members of the group `omq` were its clients: they become clients by name, operators not."""
    machine.sh("useradd -G omq old; printf '[ipc]\\nclients_max = 50\\n' > /etc/omq/omq.conf;"
               " chmod 750 /var/lib/omq /etc/omq; chgrp omq /etc/omq")
    assert "new clients: old" in machine.run(OMQ, "setup", "--dry-run")
    said = machine.run(OMQ, "setup")
    assert "old, of group omq, is in omq-clients now" in said
    assert "gpasswd -a NAME omq-operators" in said
    assert set(machine.run("id", "-nG", "old").split()) == {"old", "omq", "omq-clients"}
    conf = machine.sh("cat /etc/omq/omq.conf").splitlines()
    assert conf == ["[ipc]", "clients_group = omq-clients", "operators_group = omq-operators",
                    "clients_max = 50"]
    assert machine.sh("stat -c '%a' /var/lib/omq /etc/omq").split() == ["711", "755"]
    assert "omq-clients" not in machine.run(OMQ, "setup"), "once"


def test_units_are_clean_and_hard(machine: Box) -> None:
    machine.run("systemd-analyze", "verify", "--man=no", f"{UNITS}/omq.target",
                *(f"{UNITS}/{name}" for name in machine.sh(f"ls {UNITS}").split()
                  if name.startswith("omq") and name.endswith(".service") and "@" not in name))
    said = machine.sh(f"cd {UNITS}; systemd-analyze verify --man=no omq-*.service omq*.timer"
                      " omq*.socket 'omq-read@A.service' 'omq-service@a.service' 2>&1")
    assert said == ""
    for name in machine.sh(f"cd {UNITS}; ls omq-*.service").split():
        unit = name.replace("@", "@a")
        network = re.search("smtp|amqp|unix|metrics|web|channels|standby|ship|tls", name)
        threshold = 15 if network else 5
        if name == "omq-xport.service":
            threshold = 60  # the sendmail program's own rights (setgid), see the unit
        said = machine.run("systemd-analyze", "security", "--no-pager",
                           f"--threshold={threshold}", unit, code=None)
        exposure = re.search(r"Overall exposure level for \S+ (\d+\.\d+)", said)
        assert exposure, said
        assert float(exposure[1]) * 10 <= threshold, said


def test_remove_leaves_spool_and_configuration(machine: Box) -> None:
    machine.run("systemctl", "start", "omq.target")
    assert machine.active("omq-queue-manager.service") == "active"
    said = machine.run(OMQ, "setup", "--remove")
    assert "the spool /var/lib/omq, the configuration /etc/omq and user omq stay" in said
    assert machine.sh(f"ls {UNITS} | grep omq || true") == ""
    assert PREFIX not in machine.sh("ls -l /usr/local/bin")
    machine.sh("test -s /var/lib/omq/instance.json; test -s /etc/omq/omq.conf; pgrep -u omq", 1)
    assert "is not installed" in machine.run(OMQ, "setup", "--remove", code=1)
