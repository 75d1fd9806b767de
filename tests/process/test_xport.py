"""xport.out in a running instance: turned on, seen by the tools, killed while its command runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import omq
from omq.base.paths import shipped_conf
from tests.process.test_service_commands import CONF, Instance, running

SENDMAIL = """\
#!/usr/bin/python3
import os, sys
home = os.path.dirname(os.path.abspath(__file__))
text = sys.stdin.buffer.read().decode()
with open(home + "/begun", "a") as log:
    log.write(text.splitlines()[0] + chr(10))
if "Subject: wait" in text:
    open(home + "/gate").read()
if "Subject: unknown" in text:
    print("nobody here")
    sys.exit(67)
with open(home + "/sent", "a") as log:
    log.write(" ".join(sys.argv[1:]) + " " + text.splitlines()[0] + chr(10))
"""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    program = tmp_path / "sendmail"
    program.write_text(SENDMAIL)
    program.chmod(0o755)
    os.mkfifo(tmp_path / "gate")
    with running(tmp_path / "spool") as made:
        conf = made.spool / "conf"
        (conf / "omq.conf").write_text(
            CONF + f"xport_command = {program} -f {{sender}} {{recipients}}\n"
            "[daemons]\nrestart_backoff_min_s = 0\n")
        (conf / "routes.conf").write_text("[local]\ndomains = here.test\n[queues]\n* = XPORT\n")
        (conf / "queues.conf").write_text((shipped_conf() / "queues.conf").read_text().replace(
            "death_delay_s = 30", "death_delay_s = 0"))
        services = (shipped_conf() / "services.conf").read_text()
        (conf / "services.conf").write_text(services.replace(
            "queue = XPORT\nenabled = no", "queue = XPORT\nenabled = yes"))
        supervisor = json.loads((made.spool / "run/supervisor.json").read_text())["pid"]
        os.kill(supervisor, signal.SIGHUP)
        made.wait("xport runs", lambda: made.up(9))
        yield made


def submit(made: Instance, subject: str, sender: str = "s@here.test") -> None:
    with omq.connect(made.spool) as c:
        c.put("ROUTER", f"Subject: {subject}\r\nTo: a@far.test\r\n\r\nx\r\n".encode(),
              properties={"mail.from": sender, "mail.to": "a@far.test"})


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_mail_passes_a_report_comes_back_a_death_repeats(instance: Instance) -> None:
    home = instance.spool.parent
    assert instance.run("omstat", "-s").count("Sendmail Interface") == 1
    assert "Queue name                    = XPORT" in instance.run("omsetsvc", "-r", "xport")
    submit(instance, "plain")
    instance.wait("it is sent", lambda: lines(home / "sent") == [
        "-f s@here.test a@far.test Subject: plain"])

    submit(instance, "unknown")
    inbox = instance.spool / "mail/s/new"
    instance.wait("the report", lambda: inbox.is_dir() and any(inbox.iterdir()))
    (report,) = inbox.iterdir()
    assert "nobody here" in report.read_text() and "5.1.1" in report.read_text()

    submit(instance, "wait")
    instance.wait("it has begun", lambda: lines(home / "begun").count("Subject: wait") == 1)
    os.kill(instance.readers("xport")["xport"], signal.SIGKILL)
    instance.wait("it comes again", lambda: lines(home / "begun").count("Subject: wait") == 2)
    def both_go_on() -> bool:
        """The first reader's command outlived it."""
        with contextlib.suppress(OSError):  # nobody waits at the gate yet, or any more
            os.close(os.open(home / "gate", os.O_WRONLY | os.O_NONBLOCK))
        return len(lines(home / "sent")) == 3
    instance.wait("both have it", both_go_on)

    def settled() -> bool:
        with omq.connect(instance.spool) as c:
            return not any(row.queue == "XPORT" for row in c.browse("XPORT"))
    instance.wait("nothing waits", settled)
    assert "Sendmail Interface: Stopped" in instance.run("omoff", "xport")
    assert "Sendmail Interface: Started" in instance.run("omon", "xport")
