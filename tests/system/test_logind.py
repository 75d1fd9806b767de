"""logind takes a user's System V objects away at his logout; omq's are those of a system user."""

from __future__ import annotations

from tests.system.box import Box
from tests.system.work import depths, pids, put

AT_ONCE = "[Login]\nUserStopDelaySec=0\n"
PAM = "account sufficient pam_permit.so\nsession required pam_systemd.so class=background\n"


def _session(box: Box, user: str) -> str:
    """A session of the user, in which he makes a segment; its id. When this returns it is over."""
    said = box.run("systemd-run", "--quiet", "--wait", "--pipe", f"--property=User={user}",
                   "--property=PAMName=session-test", "sh", "-c",
                   "ipcmk -M 4096; loginctl list-sessions --no-legend")
    assert f" {user}" in said, said  # a session it was
    return next(line.split(": ")[1] for line in said.splitlines() if ": " in line)


def _segments(box: Box) -> set[str]:
    return {line.split()[1] for line in box.run("ipcs", "-m").splitlines() if line.startswith("0x")}


def test_queues_outlive_a_logout(installed: Box) -> None:
    """Else the index would go with the first `runuser -u omq` that is over."""
    box = installed
    box.sh("cd /etc/systemd/system; rm -f systemd-logind.service systemd-user-sessions.service")
    box.write("/etc/systemd/logind.conf.d/test.conf", AT_ONCE)
    box.write("/etc/pam.d/session-test", PAM)
    box.sh("systemctl daemon-reload; systemctl start dbus systemd-logind systemd-user-sessions;"
           " useradd --uid 1500 --create-home person")
    assert box.run("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
                   "org.freedesktop.login1.Manager", "RemoveIPC").strip() == "b true"
    box.run("systemctl", "start", "omq-queue-manager")
    put(box, 0, 5)
    before = pids(box, ("omq-queue-manager",))
    of_omq, of_person = _session(box, "omq"), _session(box, "person")
    box.wait("logind to clear up behind the person", lambda: of_person not in _segments(box))
    assert of_omq in _segments(box)  # its session was over before the other began
    assert depths(box)["ORDERS"] == 5
    assert pids(box, ("omq-queue-manager",)) == before
