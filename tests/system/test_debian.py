"""The Debian package's life on a real systemd: install, edit, upgrade with messages in flight, a
second instance, remove, purge. Built from the same wheels as the other machines' environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.box import Box
from tests.system.conftest import CONF, QUEUES
from tests.system.work import CORE, MAIL, READER, moment, pids, seen, states
from tests.tidy.tree import ROOT

PYTHON = "/usr/lib/omq/bin/python"
OLD, NEW = "0.0.1", "999"
UNITS = "/usr/lib/systemd/system"
OWN = "/etc/systemd/system"
SLOW = "#!/bin/sh\nread -r n; echo $n >> /var/lib/omq/seen; exec sleep 0.02\n"


@pytest.fixture(scope="module")
def packages(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package in two versions; the newer one has another unit, too."""
    out = tmp_path_factory.mktemp("deb")
    pins = [line for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
            if "==" in line]
    requirements = out / "requirements"  # no hashes: some of the wheels were built here
    requirements.write_text("".join(f"{line.split(' ')[0]}\n" for line in pins), encoding="ascii")
    subprocess.run(
        [ROOT / "tools/debian/build", Path(sys.executable).with_name("pip"), requirements, out,
         *wheels.glob("omq_*.whl")],
        env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels),
                          "DPKG_DEB_COMPRESSOR_LEVEL": "0"},  # half of the time of all this
        check=True, capture_output=True)
    (built,) = out.glob("omq_*.deb")
    tree = out / "tree"
    subprocess.run(["dpkg-deb", "-R", built, tree], check=True)
    for version in (OLD, NEW):
        control = tree / "DEBIAN/control"
        control.write_text(re.sub(r"(?m)^Version: .*", f"Version: {version}", control.read_text()))
        with (tree / UNITS[1:] / "omq-idel.service").open("a") as unit:
            unit.write(f"# of version {version}\n")
        subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree,
                        out / f"{version}.deb"], check=True, capture_output=True)
    shutil.rmtree(tree)
    (links,) = out.glob("omq-mta_*.deb")
    subprocess.run(["dpkg-deb", "-R", links, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Depends: .*", f"Depends: omq (>= {OLD})", control.read_text()))
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, out / "mta.deb"],
                   check=True, capture_output=True)
    shutil.rmtree(tree)
    return out


@pytest.fixture(scope="module")
def box(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    box = Box(tmp_path_factory.mktemp("box") / "state", {packages: "/srv/omq"})
    yield box
    box.stop(in_order=False)


def _put(box: Box, first: int, last: int, queue: str = "ORDERS", instance: str = "") -> None:
    spool = f"/var/lib/omq-{instance}" if instance else "/var/lib/omq"
    box.run(PYTHON, "-c", "import sys, omq\n"
            f"with omq.connect(spool={spool!r}, name='work') as connection:\n"
            f"    connection.put_many({queue!r}, [b'%d\\n' % n for n in range({first}, {last})])")


def _depth(box: Box, queue: str, instance: str = "") -> int:
    spool = f"/var/lib/omq-{instance}" if instance else "/var/lib/omq"
    return int(box.run(PYTHON, "-c", "import omq\n"
                       f"with omq.connect(spool={spool!r}, name='look') as connection:\n"
                       f"    print(len(list(connection.browse({queue!r}))))"))


@pytest.mark.parametrize("name", ["omq", "omq-mta"])
def test_lintian_has_no_errors(packages: Path, name: str) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("lintian is missing: apt-get install lintian")
    (built,) = packages.glob(f"{name}_*.deb")
    result = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", built], check=False,
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_first_install_says_what_is_true(box: Box) -> None:
    said = box.run("dpkg", "--install", f"/srv/omq/{OLD}.deb")
    assert "omq.target is enabled and not started; start it with: systemctl start" in said
    assert box.active("omq.target") == "inactive"
    assert box.run("systemctl", "is-enabled", "omq.target", "omq-smtp.service").split() == [
        "enabled", "enabled"]
    assert box.sh("cat /proc/sys/kernel/msgmnb").strip() == "4194304"
    assert box.sh("id -nG omq").split() == ["omq", "omq-clients", "omq-operators"]


def test_the_package_owns_what_it_brings(box: Box) -> None:
    for path in (f"{UNITS}/omq.target", "/usr/lib/sysusers.d/omq.conf",
                 "/usr/lib/sysctl.d/60-omq.conf", "/usr/lib/tmpfiles.d/omq.conf",
                 "/usr/share/man/man1/omstat.1.gz",
                 "/usr/share/bash-completion/completions/omstat", "/usr/bin/omstat",
                 "/usr/share/zsh/vendor-completions/_omq", "/usr/share/doc/omq/copyright"):
        assert box.run("dpkg", "-S", path).startswith("omq: "), path
    assert box.sh("dpkg-query -W -f '${Conffiles}' omq | awk '{print $1}'").split() == [
        "/etc/logrotate.d/omq", "/etc/omq/omq.conf"]
    assert box.sh(f"find {OWN} -name 'omq*' -type f") == ""
    assert box.sh("ls /usr/lib/omq/bin").split() == sorted(
        box.sh("ls /usr/lib/omq/bin | grep -E '^(om|[a-z]+[.]|python)'").split()), "foreign scripts"
    box.sh(f"systemd-analyze verify --man=no {UNITS}/omq.target {UNITS}/omq-drain.service"
           f" {UNITS}/omq-queue-manager.service")


def test_it_runs(box: Box) -> None:
    box.write("/etc/omq/omq.conf", CONF)
    box.write("/etc/omq/queues.conf", QUEUES)
    box.run("omrc")
    assert states(box, (*CORE, *MAIL)) == {"active"}
    box.write("/etc/omq/readers/ORDERS", SLOW, "755")
    box.sh("chgrp -R omq /etc/omq/readers; systemctl enable --now " + READER)
    assert box.show("omq-smtp.service", "Slice") == "system-omq.slice"


def test_a_second_instance_has_its_own_port(box: Box) -> None:
    said = box.run("omq", "setup", "--instance", "test")
    assert "smtp_listen_port" not in said
    assert "smtp_listen_port = 2526" in box.run("cat", "/etc/omq-test/omq.conf")
    box.write("/etc/omq-test/queues.conf", QUEUES)
    box.run("omrc", "--instance", "test")
    _put(box, 0, 1, "AUDIT", "test")
    assert box.sh("systemctl is-active omq-test-smtp.service").strip() == "active"


def test_sendmail_is_ours_when_it_is_asked_for(box: Box) -> None:
    """By a package of its own, which no other mail system may be beside; and it goes with it."""
    names = "/usr/sbin/sendmail /usr/lib/sendmail /usr/bin/mailq /usr/bin/newaliases"
    box.sh(f"rm -f {names}")  # what was unpacked on this machine is nobody's
    assert not set(names.split()) & set(box.run("dpkg", "-L", "omq").split())
    said = box.run("dpkg", "--install", "/srv/omq/mta.deb")
    assert "systemctl enable --now omq-drop.socket; omon drop" in said
    assert box.sh("dpkg-query -W -f '${Provides} ${Conflicts} ${Replaces}' omq-mta").split() == [
        "mail-transport-agent"] * 3
    for name in names.split():
        assert box.run("readlink", "-f", name).strip() == "/usr/lib/omq/bin/omq-sendmail"
    _mail_of_everybody(box)
    box.run("dpkg", "--purge", "omq-mta")
    box.sh(f"for name in {names}; do test ! -e $name; done; test -x /usr/bin/omq-sendmail")


def _mail_of_everybody(box: Box) -> None:
    """As the package says it: mail of a user who has no right on any queue, while mail.drop runs
    and while it does not."""
    inbox = "/var/lib/omq/mail/root/new"
    shipped = box.run(PYTHON, "-c", "from omq.base.paths import shipped_conf\n"
                      "print(shipped_conf() / 'services.conf')").strip()
    box.sh(f"sed '/^\\[drop\\]/,/^\\[/s/^enabled = no/enabled = yes/' {shipped}"
           " > /etc/omq/services.conf && grep -A9 '^.drop.' /etc/omq/services.conf"
           " | grep -q '^enabled = yes'")
    box.sh("systemctl enable --now omq-drop.socket; omon drop")
    for number in (1, 2):
        box.sh(f"printf 'Subject: number {number}\\n\\nhello\\n' |"
               " setpriv --reuid=nobody --regid=nogroup --clear-groups /usr/sbin/sendmail root")
        box.wait(f"mail {number}", lambda: box.sh(
            f"grep -rls '^Subject: number {number}' {inbox} || true") != "")  # noqa: B023
        box.run("systemctl", "stop", "omq-drop.service")  # the next one starts it, by its socket
    box.sh("systemctl disable --now omq-drop.socket; omoff drop; rm /etc/omq/services.conf")


def test_an_upgrade_keeps_edits_and_messages_in_flight(box: Box) -> None:
    """A unit of the administrator's own, a drop-in, a conffile, a unit of the second instance."""
    box.sh(f"cp {UNITS}/omq-router.service {OWN}/; sed -i s/RestartSec=1/RestartSec=9/"
           f" {OWN}/omq-router.service {OWN}/omq-test-idel.service; systemctl daemon-reload")
    box.write(f"{OWN}/omq-local.service.d/own.conf", "[Service]\nCPUWeight=50\n")
    box.run("omoff", "errmgr")
    theirs = tuple(unit.replace("omq", "omq-test") for unit in CORE)
    before = pids(box, CORE) | pids(box, theirs)
    _put(box, 0, 120)
    box.wait("the reader at work", lambda: len(seen(box)) >= 5)
    said = box.run("dpkg", "--install", "--force-confold", f"/srv/omq/{NEW}.deb")
    assert said.index("omq.target: stopped in order") < said.index("omq-test.target: stopped")
    assert said.index("omq.target: started again") < said.index("omq-test.target: started again")
    assert moment(box, "omq-pool-writer", "InactiveExit") < moment(
        box, "omq-test-queue-manager", "InactiveExit")
    assert f"{OWN}/omq-test-idel.service has been edited; it stays" in said
    assert f"{OWN}/omq-router.service is not the package's" in said
    after = pids(box, CORE) | pids(box, theirs)
    assert all(after[unit] not in (0, before[unit]) for unit in before)
    assert f"of version {NEW}" in box.run("systemctl", "cat", "omq-idel.service")
    assert "RestartSec=9" in box.run("systemctl", "cat", "omq-router.service")
    assert box.show("omq-local.service", "CPUWeight") == "50"
    assert box.run("cat", "/etc/omq/omq.conf") == CONF
    box.wait("all messages", lambda: len(seen(box)) >= 120)
    assert seen(box) == list(range(120)), "each once"
    assert _depth(box, "AUDIT", "test") == 1
    assert box.active("omq-error.service") == "inactive", "what omoff turned off stays off"
    box.sh(f"rm {OWN}/omq-router.service; omon errmgr")


def test_removal_drains_both_and_keeps_messages(box: Box) -> None:
    _put(box, 0, 3, "AUDIT")
    said = box.run("dpkg", "--remove", "omq")
    box.run("pgrep", "-u", "omq", code=1)
    assert "omq-test.target is stopped and its units are gone" in said
    assert "/var/lib/omq stays: 3 messages wait in it" in said
    assert f"{OWN}/omq-test-idel.service has been edited and stays" in said
    box.sh("test -s /var/lib/omq-test/instance.json; test -s /etc/omq/omq.conf")
    box.run("test", "-e", "/usr/lib/omq", code=1)
    assert box.sh(f"find {OWN} {UNITS} -name 'omq*' ! -name 'omq-local.service.d'").split() == [
        f"{OWN}/omq-test-idel.service"]
    box.sh(f"rm {OWN}/omq-test-idel.service; systemctl daemon-reload")


def test_a_purge_takes_no_message(box: Box) -> None:
    said = box.run("dpkg", "--purge", "omq")
    assert "/var/lib/omq stays, for messages wait in it" in said
    assert box.sh("ls /etc/omq").split() == ["readers"]
    box.run("dpkg", "--install", f"/srv/omq/{NEW}.deb")
    box.write("/etc/omq/queues.conf", QUEUES)
    box.run("omrc")
    assert _depth(box, "AUDIT") == 3
    box.run("omread", "AUDIT", "--count", "3", "--", "cat")
    box.run("dpkg", "--remove", "omq")
    box.sh("rm -r /etc/omq/readers")
    said = box.run("dpkg", "--purge", "omq")
    assert "stays" not in said
    box.sh("test ! -e /var/lib/omq; test ! -e /etc/omq; test -d /var/lib/omq-test")


def test_an_image_without_a_running_systemd_gets_it_enabled(box: Box) -> None:
    """As in a chroot, where images are made."""
    hidden = "unshare --mount sh -euc 'mount -t tmpfs tmpfs /run/systemd; {}'"
    said = box.sh(hidden.format(f"dpkg --install /srv/omq/{NEW}.deb"))
    assert "omq.target is enabled and not started" in said
    box.sh(f"test -L {OWN}/multi-user.target.wants/omq.target; test -d /var/lib/omq")
    box.sh(hidden.format("dpkg --purge omq"))
    assert box.sh(f"find {OWN} -name 'omq*' ! -name 'omq-local.service.d'") == ""
