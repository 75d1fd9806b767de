"""omon, omoff and omsetsvc on an instance that omrc --embedded runs: the words of systemd's."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omq.base.paths import shipped_conf
from tests.process.processes import popen

WAIT_S = 60.0
CONF = ("[index]\nmessages_max = 1000\nqueue_entries_max = 1000\n[journal]\n"
        "journal_file_bytes = 4 MiB\nblock_bytes_max = 1 MiB\n[store]\ndisk_reserve_bytes = 0\n"
        "[mail]\nsmtp_listen_port = 0\n")


class Instance:
    """A spool and its commands."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        (spool / "conf").mkdir(parents=True)
        (spool / "conf/omq.conf").write_text(CONF, encoding="ascii")

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

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, what
            select.select([], [], [], 0.05)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("services") / "spool")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "omq.cli.launch", "omrc", "--embedded", "--spool", made.spool,
         "--reason", "test of commands"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        made.wait("all services", lambda: made.run("omstat", "-a").count("Started") == 8
                  if (made.spool / "run/supervisor.json").exists() else False)
        yield made
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


def test_off_and_on(instance: Instance) -> None:
    assert "Service Router: Stopped" in instance.run("omoff", "router")
    assert instance.run("omstat", "-s").split()[:3] == ["Service", "Router", "Stopped"]
    assert "Required state                - Disabled" in instance.run("omsetsvc", "-r", "router")
    assert "Service Router: Started" in instance.run("omon", "Service Router")
    assert "NON-STOP" in instance.run("omoff", "qmgr", code=64)
    assert "not defined" in instance.run("omon", "nobody", code=66)
    first = instance.run("omoff", "all").splitlines()[0]
    assert first == "omoff: SMTP Server: Stopped"
    assert instance.run("omstat", "-a").count("Stopped") == 5
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
