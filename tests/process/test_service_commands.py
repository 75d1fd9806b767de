"""omon, omoff and omsetsvc on an instance that omrc --embedded runs: the words of systemd's."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

import omq
from omq.base import clock
from omq.base.paths import SpoolPaths, shipped_conf
from omq.core.index.view import IndexView
from omq.format.index import EntryState
from tests.process.processes import popen

WAIT_S = 120.0
CONF = ("[index]\nmessages_max = 1000\nqueue_entries_max = 1000\n[journal]\n"
        "journal_file_bytes = 4 MiB\nblock_bytes_max = 1 MiB\n[store]\ndisk_reserve_bytes = 0\n"
        "[mail]\nsmtp_listen_port = 0\n")


class Instance:
    """A spool and its commands."""

    def __init__(self, spool: Path, conf: str) -> None:
        self.spool = spool
        (spool / "conf").mkdir(parents=True)
        (spool / "conf/omq.conf").write_text(conf, encoding="ascii")

    def run(self, *words: str, code: int = 0) -> str:
        output = self.spool.parent / "output"
        output.unlink(missing_ok=True)
        done = popen(words[0], list(words[1:]), output=output,
                     environment={"OMQ_SPOOL": str(self.spool)}).wait(WAIT_S)
        said = output.read_text()
        assert done == code, said
        return said

    def readers(self, service: str) -> dict[str, int]:
        found = json.loads((self.spool / f"run/{service}.json").read_text(encoding="ascii"))
        return {each["name"]: each["pid"] for each in (found["main"], *found["auxiliary"])}

    def up(self, services: int = 8) -> bool:
        """Whether so many run, and all that should. One whose turn to start has not come is
        Stopped, which omstat does not complain of."""
        if not (self.spool / "run/supervisor.json").exists():
            return False
        output = self.spool.parent / "up"
        output.unlink(missing_ok=True)
        code = popen("omstat", ["-a"], output=output, environment={"OMQ_SPOOL": str(self.spool)}
                     ).wait(WAIT_S)
        return code == 0 and output.read_text().count("Started") == services

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, what
            select.select([], [], [], 0.05)


@contextmanager
def running(spool: Path, *options: str, conf: str = CONF, services: int = 8,
            files: Mapping[str, str] = MappingProxyType({})) -> Iterator[Instance]:
    """`files`: others of conf/; `services`: how many they start."""
    made = Instance(spool, conf)
    for name, text in files.items():
        (spool / "conf" / name).write_text(text, encoding="ascii")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "omq.cli.launch", "omrc", "--embedded", "--spool", made.spool,
         *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        made.wait("all services", lambda: made.up(3 if "-n" in options else services))
        yield made
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    spool = tmp_path_factory.mktemp("services") / "spool"
    with running(spool, "--reason", "test of commands") as made:
        yield made


def test_off_and_on(instance: Instance) -> None:
    assert "Service Router: Stopped" in instance.run("omoff", "router")
    assert instance.run("omstat", "-s").split()[:3] == ["Service", "Router", "Stopped"]
    assert "Required state                - Disabled" in instance.run("omsetsvc", "-r", "router")
    assert "Service Router: Started" in instance.run("omon", "Service Router")
    (off,) = [line for line in instance.run("omsetsvc", "-r", "router").splitlines()
              if line.startswith("Last delayed off time")]
    assert off.count(":") == 2, "also when it is on again, as in the original"
    assert "NON-STOP" in instance.run("omoff", "qmgr", code=64)
    assert "not defined" in instance.run("omon", "nobody", code=66)
    first = instance.run("omoff", "all").splitlines()[0]
    assert first == "omoff: SMTP Server: Stopped"
    assert instance.run("omstat", "-a").count("Stopped") == 5  # code 0: they were turned off
    instance.run("omon", "all")
    assert instance.run("omstat", "-a").count("Started") == 8


def test_auxiliaries(instance: Instance) -> None:
    shipped = (shipped_conf() / "services.conf").read_text(encoding="utf-8")
    before = instance.readers("router")
    assert "3 of 3" in instance.run("omsetsvc", "-x", "router", "3")
    after = instance.readers("router")
    assert list(after) == ["router", "router.1", "router.2", "router.3"]
    assert {name: after[name] for name in before} == before
    assert "0 of 0" in instance.run("omsetsvc", "-x", "router", "0")
    instance.wait("their end is published", lambda: instance.readers("router") == {
        "router": before["router"]})
    mine = (instance.spool / "conf/services.conf").read_text(encoding="utf-8")
    assert mine == shipped.replace("queue = ROUTER\nauxiliaries = 1", "queue = ROUTER\n"
                                   "auxiliaries = 0")
    said = instance.run("omstat", "-s", "-p").splitlines()[0].split()
    assert said[2] == "Disabled"
    assert "reads" not in instance.run("omsetsvc", "-x", "smtp", "1", code=64)


def test_the_listing_is_the_originals(instance: Instance) -> None:
    lines = instance.run("omsetsvc", "-r", "local").splitlines()
    assert lines[0] == "Details for subsystem Local Delivery:"
    assert lines[1] == "Service Number                = 3"
    assert "Queue name                    = LOCAL" in lines
    assert "Auxiliary processes           = 2" in lines
    pids = instance.readers("local")
    shown = [line.split(":")[1].split() for line in lines if line.startswith("PID's")]
    assert shown[0][0] == str(pids["local"])
    assert shown[1][:2] == [str(pids["local.1"]), str(pids["local.2"])]
    assert all(len(each) == 20 for each in shown)


SEED_LINES = (
    "Service Number", "Number of components", "Logging Level", "Audit logging Level",
    "Has an input queue?", "Queue name", "Show details from omstat?", "Subsystem can be enabled?",
    "Required state", "Last state change (on/off)", "Last delayed off time", "Startup prog name",
    "Shutdown program name", "Status program name", "PID's of subsystem processes", "Nice Level",
    "Additional Resolve Flag", "Subsystem is controlled by 'all'", "Minimum temporary processes",
    "Maximum temporary processes", "Context dependent information", "Auxiliary processes",
    "PID's of auxiliary processes")


def test_the_listing_has_every_line_of_the_original_and_its_names(instance: Instance) -> None:
    lines = instance.run("omsetsvc", "-r", "sr").splitlines()  # as in the original's examples
    assert lines[0] == "Details for subsystem Service Router:"
    assert len(lines) == 1 + len(SEED_LINES)
    for line, name in zip(lines[1:], SEED_LINES, strict=True):
        assert line.startswith(name), line
    assert "Logging Level                 = 9" in lines


def test_deferred_mail_needs_no_process_of_its_own(instance: Instance) -> None:
    """The original has a defer.manager in the Service Router, and its pid in the listing. Here what
    is deferred is ready again at its moment with the Service Router off."""
    lines = instance.run("omsetsvc", "-r", "sr").splitlines()
    assert "Number of components          = 1" in lines
    (pids,) = [line for line in lines if line.startswith("PID's of subsystem processes")]
    assert pids.split(":")[1].split() == [str(instance.readers("router")["router"]), *["0"] * 19]
    (errors,) = [line for line in instance.run("omsetsvc", "-r", "errmgr").splitlines()
                 if line.startswith("PID's of subsystem processes")]
    assert errors.split()[4] == str(instance.readers("errmgr")["errmgr"])
    instance.run("omoff", "router")
    with omq.connect(instance.spool) as c:
        c.put("ROUTER", b"To: a@localhost\r\n\r\nx\r\n", delay_s=3600)
        (row,) = c.browse("ROUTER")
        assert row.state is EntryState.DEFERRED
        c.put("ROUTER", b"To: a@localhost\r\n\r\nx\r\n", delay_s=0.1)
        instance.wait("the second is ready", lambda: [each.state for each in c.browse("ROUTER")
                                                      ].count(EntryState.READY) == 1)
        c.queues.clear("ROUTER")
    instance.run("omon", "router")


def test_who_changed_a_service_is_in_the_journal(instance: Instance) -> None:
    instance.run("omoff", "unix", "--reason", "host is down")
    instance.run("omsetsvc", "-x", "unix", "2", "--reason", "host is slow")
    instance.run("omon", "unix")
    said = instance.run("omqlog", "--operator").splitlines()
    mine = [line.strip() for line in said if f"by operator uid {os.getuid()}: om" in line]
    assert [line.split(": ", 1)[1] for line in mine[-3:]] == [
        "omoff unix", "omsetsvc -x unix 2", "omon unix"]
    assert "reason = test of commands" in instance.run("omshowlog", "-l", "9")  # no manager yet
    assert "    reason: host is down" in said and "    reason: host is slow" in said
    assert "operator command, 1 service [" in "\n".join(said), "omon counts services"


def test_the_manager_is_started_alone_and_the_services_later(tmp_path: Path) -> None:
    """The seed's procedure: omrc -n, dump the Message Pool, then start the services."""
    with running(tmp_path / "spool", "-n") as alone:
        assert alone.run("omstat", "-a").count("Started") == 3
        assert alone.run("omstat", "-a").count("Stopped") == 5
        assert "Total Files=" in alone.run("omqdump", "-e", "t m -")
        assert "Service Router: Started" in alone.run("omon", "router")
        supervisor = json.loads((alone.spool / "run/supervisor.json").read_text(encoding="ascii"))
        os.kill(supervisor["pid"], signal.SIGHUP)
        alone.wait("the reload", lambda: '"event": 1004, "text": "Configuration Reloaded"'
                   in (alone.spool / "logs/events.log").read_text())
        assert alone.run("omstat", "-a").count("Started") == 4, "a reload starts nothing"
        alone.run("omon", "all")
        assert alone.run("omstat", "-a").count("Started") == 8


def test_what_a_fatal_signal_ends_leaves_its_stack_in_the_log(instance: Instance) -> None:
    log, kept = instance.spool / "logs/events.log", instance.spool / "logs/router.stack"
    reader = instance.readers("router")["router"]
    assert reader > 0, "0 is this test's own group"
    os.kill(reader, signal.SIGABRT)
    instance.wait("the stack of the reader", lambda: '"event": 1321' in log.read_text())
    told = [each for each in map(json.loads, log.read_text().splitlines())
            if each["event"] == 1321]
    assert [each["file"] for each in told] == [str(kept)]
    assert told[0]["stack"].startswith("Fatal Python error: Aborted")
    assert "runner.py" in kept.read_text(), "the file has the whole of it"
    status = json.loads((instance.spool / "run/supervisor.json").read_text(encoding="ascii"))
    manager = next(each["pid"] for each in status["children"] if each["name"] == "qmgr")
    os.kill(manager, signal.SIGABRT)
    kept = instance.spool / "logs/qmgr.stack"
    instance.wait("the stack of the manager", lambda: str(kept) in log.read_text())
    assert "queue_manager.py" in kept.read_text()
    instance.wait("all to be up again", instance.up)
    tomb = (instance.spool / "logs/qmgr.tomb").read_text()
    assert tomb.splitlines()[0].endswith(f", pid {manager}") and "queue_manager.py" in tomb


def test_a_service_that_is_not_enabled_is_not_turned_on(instance: Instance) -> None:
    file = instance.spool / "conf/services.conf"
    before = file.read_text(encoding="utf-8")
    file.write_text(before.replace("[unix]\n", "[unix]\nenabled = no\n"), encoding="utf-8")
    said = instance.run("omon", "unix", code=64)
    file.write_text(before, encoding="utf-8")
    assert "unix is not enabled" in said


def test_a_service_whose_queue_is_not_defined_is_refused_at_once(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with running(spool, "-n") as alone:
        shutil.copy(shipped_conf() / "queues.conf", spool / "conf/queues.conf")
        said = alone.run("omon", "router")
        assert "Service Router: Started" in said
        alone.run("omoff", "router")
        services = (shipped_conf() / "services.conf").read_text(encoding="utf-8")
        (spool / "conf/services.conf").write_text(
            services.replace("queue = ROUTER\n", "queue = NOWHERE\n"), encoding="utf-8")
        said = alone.run("omon", "router", code=66)
        assert "service router cannot run: its queue NOWHERE is not defined" in said
        said = alone.run("omstat", "-a")  # an operator has turned it off: that is no cause
        assert "is not defined" not in said
        assert re.search(r"^Service Router +Stopped", said, re.MULTILINE)


def test_an_auxiliary_reader_that_a_signal_stopped_is_shown(instance: Instance) -> None:
    pid = instance.readers("local")["local.1"]
    assert pid > 0
    try:
        os.kill(pid, signal.SIGSTOP)
        instance.wait("it to stop", lambda: clock.process_state(pid) == "T")
        said = instance.run("omstat", "-s", "-p", code=1)
        (line,) = [each for each in said.splitlines() if each.startswith("Local Delivery  ")]
        assert "stopped by signal" in line
        assert f"process {pid} of Local Delivery (service local) is stopped by a signal" in said
        assert f"kill -CONT {pid}" in said
    finally:
        os.kill(pid, signal.SIGCONT)
    instance.wait("it to go on", lambda: clock.process_state(pid) != "T")
    assert "stopped by signal" not in instance.run("omstat", "-s", "-p")


def test_the_log_of_one_auxiliary_reader(tmp_path: Path) -> None:
    """The seed's walk: a backlog, and two auxiliaries; omsetsvc -r has their pids, omshowlog -P
    shows who logged what, -i only what one of them did."""
    spool = tmp_path / "spool"
    conf = CONF.replace("[mail]", "[daemons]\nevent_level = TRACE\n[mail]")
    with running(spool, conf=conf) as alone:
        alone.run("omsetsvc", "-x", "local", "2")
        main = alone.readers("local")["local"]
        assert main > 0
        os.kill(main, signal.SIGSTOP)  # so that there is a backlog, and each auxiliary has its part
        with omq.connect(spool) as connection:
            for number in range(60):
                connection.put("LOCAL", b"Subject: x\n\nbody\n", properties={
                    "mail.from": "admin@example.org", "mail.to": f"user{number % 3}@example.org"})

        def messages() -> tuple[int, int]:
            with IndexView.attach(SpoolPaths(spool)) as view:
                return next((row.messages, row.active) for row in view.queues()
                            if row.name == "LOCAL")

        alone.wait("the auxiliaries to have done theirs", lambda: len(set(messages())) == 1)
        os.kill(main, signal.SIGCONT)
        alone.wait("all to be delivered", lambda: messages() == (0, 0))
        pids = [str(pid) for pid in alone.readers("local").values()]
        assert len(pids) == 3
        (listed,) = [line for line in alone.run("omsetsvc", "-r", "local").splitlines()
                     if line.startswith("PID's of auxiliary")]
        assert listed.split(":")[1].split()[:2] == pids[1:]
        everybody = alone.run("omshowlog", "-l", "15", "-P", "-p", "10", "-s", "local")
        logging = {line.removeprefix("Pid of logging process: ")
                   for line in everybody.splitlines() if line.startswith("Pid of logging")}
        assert logging >= set(pids), "each reader has worked, and says so"
        for pid in pids[1:]:
            said = alone.run("omshowlog", "-l", "15", "-P", "-i", pid, "-p", "10")
            entries = said.strip().split("\n\n")
            assert all(entry.splitlines()[-1] == f"Pid of logging process: {pid}"
                       for entry in entries)
            assert all("(local.delivery)" in entry.splitlines()[0] for entry in entries)
            numbers = [entry.splitlines()[1][:9] for entry in entries]
            assert numbers[0] == "[OM 7601]"
            assert numbers[1:4] == ["[OM 7603]", "[OM 7618]", "[OM 7605]"]
            assert "[OM 7604]" in numbers
        assert alone.run("omshowlog", "-i", "1", code=1) == ""
