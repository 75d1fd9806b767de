"""The operator's commands under systemd, the journal, and the hard edges of the units."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from omq.base.journald import message_id
from tests.system.box import PREFIX, Box
from tests.system.work import CORE, MAIL, depths, pids, put, start, states

STATE = "/var/lib/omq/run/router.json"


@pytest.fixture(scope="module")
def running(installed: Box) -> Box:
    start(installed)
    return installed


def _readers(box: Box) -> dict[str, int]:
    """Pids of the router's readers, by name."""
    found = json.loads(box.run("cat", STATE))
    return {each["name"]: each["pid"] for each in (found["main"], *found["auxiliary"])}


def test_auxiliaries_change_live_and_survive(running: Box) -> None:
    before = _readers(running)
    assert list(before) == ["router", "router.1"]
    assert "3 of 3" in running.run("omsetsvc", "-x", "router", "3")
    after = _readers(running)
    assert {name: after[name] for name in before} == before
    assert list(after) == ["router", "router.1", "router.2", "router.3"]
    assert "1 of 1" in running.run("omsetsvc", "-x", "router", "1")
    running.wait("those that stop have ended", lambda: _readers(running) == before)
    assert "2 of 2" in running.run("omsetsvc", "-x", "2", "2")  # by its number
    running.run("systemctl", "restart", "omq-router.service")  # as at a reboot, from the file
    running.wait("two auxiliaries", lambda: len(_readers(running)) == 3)
    said = running.run("omsetsvc", "-r", "router")
    assert "Auxiliary processes           = 2" in said
    pid_line = next(line for line in said.splitlines() if line.startswith("PID's of auxiliary"))
    assert [int(word) for word in pid_line.split(":")[1].split()][:2] == [
        _readers(running)["router.1"], _readers(running)["router.2"]]
    for words, code in ((("router", "21"), 64), (("router", "-1"), 64), (("nobody", "1"), 66),
                        (("qmgr", "1"), 64)):
        running.run("omsetsvc", "-x", *words, code=code)


def test_drop_ins_are_respected(running: Box) -> None:
    path = "/etc/systemd/system/omq-local.service.d/own.conf"
    running.write(path, "[Service]\nCPUWeight=50\nEnvironment=OMQ_OWN=1\n")
    running.run("systemctl", "daemon-reload")
    assert "2 of 2" in running.run("omsetsvc", "-x", "local", "2")
    assert "0 of" in running.run(f"{PREFIX}/bin/omq", "setup")
    assert running.show("omq-local.service", "CPUWeight") == "50"
    running.run("systemctl", "restart", "omq-local.service")
    assert "OMQ_OWN=1" in running.run(
        "sh", "-c", f"tr '\\0' '\\n' < /proc/{running.pid('omq-local.service')}/environ")
    running.sh("cp -a /etc/omq /etc/omq-own")
    running.write(path, "[Service]\nEnvironment=OMQ_CONF=/etc/omq-own\n")
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "restart", "omq-local.service")
    said = running.run("omsetsvc", "-x", "local", "1", code=64)
    assert "reads /etc/omq-own/services.conf" in said and "--conf /etc/omq-own" in said
    assert "1 of 1" in running.run("omsetsvc", "--conf", "/etc/omq-own", "-x", "local", "1")
    running.sh(f"rm -r {path} /etc/omq-own")
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "restart", "omq-local.service")


def test_off_and_on_have_the_words_of_the_original(running: Box) -> None:
    assert "Service Router: Stopped" in running.run("omoff", "router")
    assert running.active("omq-router.service") == "inactive"
    listed = running.run("omstat", "-s").splitlines()[0].split()
    assert listed[:3] == ["Service", "Router", "Stopped"]
    assert "Required state                - Disabled" in running.run("omsetsvc", "-r", "router")
    put(running, 0, 3, "ROUTER")
    assert "Service Router: Started" in running.run("omon", "router")
    assert "NON-STOP" in running.run("omoff", "qmgr", code=64)
    said = running.run("omoff", "-d", "0", "all")
    assert next(line.split(":")[1].strip() for line in said.splitlines()) == "SMTP Server"
    assert states(running, MAIL) == {"inactive"}
    assert states(running, CORE) == {"active"}
    running.run("omon", "all")
    assert states(running, MAIL) == {"active"}


def test_the_queue_manager_lists_its_ipc_objects(running: Box) -> None:
    said = running.run("omsetsvc", "-r", "qmgr")
    line = next(line for line in said.splitlines() if line.startswith("Context"))
    queue, segment = line.split(":")[1].split()[:2]
    assert f" {queue} " in running.run("ipcs", "-q")
    assert f" {segment} " in running.run("ipcs", "-m")


def test_events_are_in_the_journal_with_their_fields(running: Box) -> None:
    ready = running.journal(f"MESSAGE_ID={message_id(1203)}")
    assert ready
    assert ready[-1]["OMQ_SERVICE"] == "queue.manager"
    assert ready[-1]["_SYSTEMD_UNIT"] == "omq-queue-manager.service"
    assert "[OM 1203]" in ready[-1]["MESSAGE"]
    assert "OMQ_EPOCH" in ready[-1]
    said = running.messages("-u", "omq-queue-manager.service")
    assert not [text for text in said if text.startswith("<")]


def test_omshowlog_reads_the_journal_as_the_file(running: Box) -> None:
    """Both have every event; the journal gives the same fields, numbers and texts."""
    running.run("omoff", "router")
    running.run("omon", "router")

    def shown(*words: str) -> list[dict[str, Any]]:
        """Without their times, and in an order that does not depend on them."""
        said = running.run("omshowlog", "--json", "-l", "15", "-s", "service.router", *words)
        found = [{**json.loads(line), "time": ""} for line in said.splitlines()]
        return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))

    running.wait("the last event is in the journal",
                 lambda: len(shown()) == len(shown("--file")))
    mine = shown()
    assert mine == shown("--journal") == shown("--file")
    pid = mine[-1]["pid"]
    text = running.run("omshowlog", "-l", "9", "-P", "-i", str(pid), "-p", "10")
    assert f"[OM {mine[-1]['event']}]" in text and "(service.router)" in text
    assert set(re.findall(r"Pid of logging process: (\d+)", text)) == {str(pid)}
    stranger = running.run("runuser", "-u", "omq", "--", f"{PREFIX}/bin/omshowlog", "-p", "10")
    assert "[OM " in stranger  # who may not read the journal gets the file


def test_a_port_below_1024_needs_no_root(running: Box) -> None:
    good = running.run("cat", "/etc/omq/omq.conf")
    running.write("/etc/omq/omq.conf", good + "[mail]\nsmtp_listen_port = 25\n")
    running.run("systemctl", "restart", "omq-smtp.service")
    assert running.show("omq-smtp.service", "User") == "omq"
    listening = running.sh("/usr/bin/python3 -c \"import socket; s = socket.create_connection(("
                           "'127.0.0.1', 25)); print(s.recv(100).decode())\"")
    assert listening.startswith("220 ")
    running.write("/etc/omq/omq.conf", good)
    running.run("systemctl", "restart", "omq-smtp.service")


def test_two_instances_live_side_by_side(running: Box) -> None:
    running.sh("mkdir -p /etc/omq-prod; cp /etc/omq/queues.conf /etc/omq/omq.conf /etc/omq-prod;"
               " printf '[mail]\\nsmtp_listen_port = 2526\\n' >> /etc/omq-prod/omq.conf")
    running.run(f"{PREFIX}/bin/omq", "setup", "--instance", "prod")
    running.run("omrc", "--instance", "prod")
    mine = pids(running, (*CORE, *MAIL))
    theirs = tuple(unit.replace("omq", "omq-prod") for unit in (*CORE, *MAIL))
    assert 0 not in pids(running, theirs).values()
    running.run("sh", "-c", "echo x | omsend --instance prod AUDIT")
    assert depths(running)["AUDIT"] == 0
    assert running.run("omstat", "-a", "--instance", "prod").count("Started") == 8
    running.run("systemctl", "stop", "omq-prod.target")
    assert set(pids(running, theirs).values()) == {0}
    assert pids(running, (*CORE, *MAIL)) == mine
    said = running.run(f"{PREFIX}/bin/omq", "setup", "--instance", "prod", "--remove")
    assert "the spool /var/lib/omq-prod" in said
    running.run("omstat", "-a")
    assert pids(running, (*CORE, *MAIL)) == mine
    assert running.sh("ls /etc/systemd/system | grep -c prod || true").strip() == "0"


def test_a_service_of_ones_own_runs_by_the_template(running: Box) -> None:
    running.sh(f"cp -n {PREFIX}/lib/python3*/site-packages/omq/conf/services.conf /etc/omq/"
               " || true")
    services = running.run("cat", "/etc/omq/services.conf")
    running.write("/etc/omq/services.conf", services + "\n[second]\ntitle = Second Router\n"
                  "number = 77\nkind = reader\nprogram = service.router\nqueue = DEFER\n")
    running.run(f"{PREFIX}/bin/omq", "setup")
    running.run("omon", "second")
    assert running.active("omq-service@second.service") == "active"
    assert "Second Router" in running.run("omstat", "-s")
    running.run("systemctl", "stop", "omq.target")
    assert running.active("omq-service@second.service") == "inactive"
    start(running)
    assert running.active("omq-service@second.service") == "active"


def test_objects_are_kept_from_strangers(running: Box) -> None:
    running.sh("useradd stranger 2>/dev/null || true")
    said = running.run("runuser", "-u", "stranger", "--", "ipcs", "-m", "-p")
    assert "omq" in running.run("ipcs", "-m")
    modes = running.sh("ipcs -m -q | awk '$3 == \"omq\" { print $4 }' | sort -u").split()
    assert set(modes) <= {"600", "620", "640"}, said


def test_the_archive_is_made_by_its_timer(running: Box) -> None:
    assert running.active("omq-archive.timer") == "active"
    running.run("systemctl", "start", "omq-archive.service")
    assert running.show("omq-archive.service", "Result") == "success"
    assert running.run("omstat", "-a").count("aborted") == 0


def test_reports_of_tls_are_made_by_their_timer(running: Box) -> None:
    """Enabled as MAIL has it; a run in which nobody wants reports is good."""
    timer, service = "omq-tls.timer", "omq-tls.service"
    running.run("systemctl", "enable", "--now", timer)
    assert service in running.run("systemctl", "list-timers", "--all", timer)
    before = running.show(service, "InvocationID")
    running.write(f"/etc/systemd/system/{timer}.d/now.conf",
                  "[Timer]\nOnCalendar=\nOnActiveSec=0\nRandomizedDelaySec=0\n")
    running.run("systemctl", "daemon-reload")
    running.run("systemctl", "restart", timer)
    running.wait("a run by the timer", lambda: running.show(service, "InvocationID") != before
                 and running.active(service) in ("inactive", "failed"))
    assert running.show(service, "Result") == "success", running.messages("--unit", service)
    assert any("unix_tls_reports of omq.conf is not yes" in each
               for each in running.messages("--unit", service))
    running.run("systemctl", "disable", "--now", timer)
    running.run("rm", "-r", f"/etc/systemd/system/{timer}.d")
    running.run("systemctl", "daemon-reload")
