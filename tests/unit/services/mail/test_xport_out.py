"""xport.out: each mail to a command; what its exit code means; with Debian's sendmail too."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.base import errors
from omq.base.errors import ConfigError
from omq.base.settings_file import load_settings
from omq.services.mail.xport_out import XportOutService, words_of
from omq.services.readers.service import Defer, Done, Move
from tests.bench.peers import software
from tests.bench.peers.postfix import Postfix
from tests.unit.services.mail.real import found

BODY = b"Subject: x\r\nTo: a@far.test\r\n\r\n.\r\n.hello\r\n"
TEMPORARY = (71, 72, 73, 74, 75, 126, 127)
PERMANENT = {64: "5.3.0", 65: "5.6.0", 66: "5.3.0", 67: "5.1.1", 68: "5.1.2", 69: "5.2.1",
             70: "5.3.0", 76: "5.5.0", 77: "5.7.0", 78: "5.3.5", 1: "5.3.0"}

STAND_IN = """\
#!/usr/bin/python3
import json, os, sys
home = {home!r}
text = sys.stdin.buffer.read()
with open(home + "/runs", "a") as log:
    log.write(json.dumps({{"words": sys.argv[1:], "text": text.decode("latin-1"),
                          "environment": sorted(os.environ), "directory": os.getcwd(),
                          "descriptors": sorted(os.listdir("/proc/self/fd"))}}) + chr(10))
{code}
"""


class Sendmail:
    """A stand-in program, and what it was run with."""

    def __init__(self, home: Path) -> None:
        self.home, self.path = home, home / "sendmail"
        self.does("sys.exit(0)")

    def does(self, code: str) -> None:
        self.path.write_text(STAND_IN.format(home=str(self.home), code=code))
        self.path.chmod(0o755)

    @property
    def command(self) -> str:
        return f"{self.path} -i -f {{sender}} -- {{recipients}}"

    def runs(self) -> list[dict[str, Any]]:
        log = self.home / "runs"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def sendmail(tmp_path: Path) -> Sendmail:
    return Sendmail(tmp_path)


@pytest.fixture
def xport(service: Callable[..., Any], sendmail: Sendmail) -> Callable[..., XportOutService]:
    def make(**settings: Any) -> XportOutService:
        made: XportOutService = service(XportOutService, "xport", **{
            "xport_command": sendmail.command, **settings})
        return made

    return make


@pytest.fixture
def mail(message: Callable[..., Any]) -> Callable[..., Any]:
    def make(*recipients: str, sender: str = "s@here.test", body: bytes = BODY, **more: Any) -> Any:
        properties = {"mail.from": sender, "mail.to.XPORT": "\n".join(recipients)}
        return message(body, {**properties, **more.pop("properties", {})}, queue="XPORT", **more)

    return make


def test_the_command_has_the_mail_the_sender_and_all_recipients(
        xport: Any, mail: Any, sendmail: Sendmail, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run, no shell, lines as a sendmail program reads them, nothing of our environment."""
    monkeypatch.setenv("OMQ_SECRET", "x")
    assert xport().handle(mail("a$HOME`x`@far.test", "b c@far.test")) == Done()
    (run,) = sendmail.runs()
    assert run["words"] == ["-i", "-f", "s@here.test", "--", "a$HOME`x`@far.test", "b c@far.test"]
    assert run["text"].encode() == BODY.replace(b"\r\n", b"\n")
    assert "OMQ_SECRET" not in run["environment"] and "PATH" in run["environment"]
    assert run["directory"] == "/"
    assert run["descriptors"] == ["0", "1", "2", "3", "4"], "log and listing are the last"


def test_a_report_has_the_null_sender(xport: Any, mail: Any, sendmail: Sendmail) -> None:
    assert xport().handle(mail("a@far.test", sender="")) == Done()
    assert sendmail.runs()[0]["words"][:3] == ["-i", "-f", "<>"]


@pytest.mark.parametrize("code", TEMPORARY)
def test_a_code_for_now_defers(xport: Any, mail: Any, sendmail: Sendmail, code: int) -> None:
    sendmail.does(f"print('not now'); sys.exit({code})")
    assert xport(unix_retry_step_s=60).handle(mail("a@far.test")) == Defer(60.0, "not now")


@pytest.mark.parametrize("code", PERMANENT)
def test_a_code_for_good_is_reported(xport: Any, mail: Any, sendmail: Sendmail, code: int) -> None:
    sendmail.does(f"print('no such user'); sys.exit({code})")
    answer = xport().handle(mail("a@far.test", "b@far.test"))
    (report,) = answer.new
    assert report.queues == ("ERRMGR",) and answer.queues == ()
    assert report.properties["error.to"] == "a@far.test\nb@far.test"
    assert report.properties["error.status"] == f"{PERMANENT[code]}\n{PERMANENT[code]}"
    assert report.properties["error.reason"] == "no such user\nno such user"


def test_every_code_of_sysexits_is_tested() -> None:
    assert {*TEMPORARY, *PERMANENT} >= set(range(64, 79))


@pytest.mark.parametrize("death", ["os.kill(os.getpid(), 9)", "os.abort()"])
def test_a_signal_defers(xport: Any, mail: Any, sendmail: Sendmail, death: str) -> None:
    sendmail.does(death)
    assert isinstance(xport().handle(mail("a@far.test")), Defer)


def test_a_command_that_is_not_there_defers(xport: Any, mail: Any) -> None:
    answer = xport(xport_command="/no/such/sendmail {recipients}").handle(mail("a@far.test"))
    assert isinstance(answer, Defer) and "/no/such/sendmail" in answer.reason


def test_a_command_without_end_is_killed_with_its_children(
        xport: Any, mail: Any, sendmail: Sendmail) -> None:
    """They hold a pipe that the test reads: it is at its end when all of them are dead."""
    fifo = sendmail.home / "fifo"
    os.mkfifo(fifo)
    line = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    sendmail.does(f"hold = open({str(fifo)!r}, 'wb'); os.fork(); import time; time.sleep(10**6)")
    answer = xport(xport_timeout_s=1).handle(mail("a@far.test"))
    os.set_blocking(line, True)
    assert os.read(line, 1) == b""
    os.close(line)
    assert isinstance(answer, Defer) and "did not end in 1 s" in answer.reason


def test_what_a_command_that_ended_left_behind_goes_on(
        xport: Any, mail: Any, sendmail: Sendmail) -> None:
    """Sendmail delivers in the background, after its code 0."""
    fifo = sendmail.home / "fifo"
    os.mkfifo(fifo)
    line = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    sendmail.does(f"hold = open({str(fifo)!r}, 'wb', 0)\n"
                  f"if not os.fork():\n"
                  f"    go = open({str(fifo)!r} + '.go', 'rb'); go.read(1); hold.write(b'sent')\n"
                  "    os._exit(0)\n"
                  "os._exit(0)")
    os.mkfifo(f"{fifo}.go")
    assert xport().handle(mail("a@far.test")) == Done()
    go = os.open(f"{fifo}.go", os.O_RDWR)  # does not wait for a child that may be dead
    os.write(go, b"x")
    os.set_blocking(line, True)
    assert os.read(line, 4) == b"sent"
    os.close(line)
    os.close(go)


@pytest.mark.parametrize("address", ["-bs", "/etc/passwd", "|/bin/sh", ":include:/etc/passwd",
                                     '"|/bin/sh"@far.test'])
def test_an_address_is_nothing_else(xport: Any, mail: Any, sendmail: Sendmail, address: str
                                    ) -> None:
    answer = xport().handle(mail(address, "a@far.test"))
    assert sendmail.runs()[0]["words"][-1] == "a@far.test" and len(sendmail.runs()) == 1
    assert answer.new[0].properties["error.to"] == address
    assert answer.new[0].properties["error.status"] == "5.1.3"
    answer = xport().handle(mail("a@far.test", sender=address))
    assert answer.new[0].properties["error.status"] == "5.1.7" and len(sendmail.runs()) == 1


def test_given_up_after_the_times_of_unix_out(xport: Any, mail: Any, sendmail: Sendmail) -> None:
    sendmail.does("sys.exit(75)")
    answer = xport(unix_retry_expiry_s=60).handle(mail("a@far.test", defers=9))
    assert answer.new[0].properties["error.status"] == "4.4.7"


def test_a_report_that_is_refused_gives_nothing_away_again(
        xport: Any, mail: Any, sendmail: Sendmail) -> None:
    """One of two recipients was given away; the report about the other waits alone."""
    made, message = xport(), mail("-bs", "a@far.test")
    made.handle(message)
    again = made.refused(message, errors.QueueFull(queue="ERRMGR", limit=1))
    (waiting,) = again.new
    assert waiting.queues == ("XPORT",) and waiting.delay_s > 0
    later = made.handle(mail(properties=waiting.properties))
    assert later.new[0].queues == ("ERRMGR",) and "unix.ended" not in later.new[0].properties
    assert later.new[0].properties["error.to"] == "-bs"
    assert len(sendmail.runs()) == 1


def test_without_waiting_a_batch_runs_side_by_side(
        xport: Any, mail: Any, sendmail: Sendmail) -> None:
    """Each command waits for the other: one after the other they would wait for ever."""
    meeting = [sendmail.home / name for name in "ab"]
    for each in meeting:
        os.mkfifo(each)
    sendmail.does(f"a, b = {[str(each) for each in meeting]!r}\n"
                  "first = sys.argv[-1].startswith('a')\n"
                  "open(a, 'wb' if first else 'rb').close(); "
                  "open(b, 'rb' if first else 'wb').close()\n"
                  "sys.exit(0 if first else 67)")
    service = xport(xport_wait=False, xport_timeout_s=60)
    answers = service.handle_many([mail("a@far.test"), mail("b@far.test")])
    assert answers[0] == Done()
    assert isinstance(answers[1], Move) and answers[1].new[0].properties["error.to"] == "b@far.test"


def test_waiting_is_one_after_the_other(xport: Any, mail: Any) -> None:
    assert xport().handle_many([mail("a@far.test"), mail("b@far.test")]) is None


def test_the_log_says_what_became_of_it(xport: Any, mail: Any, sendmail: Sendmail,
                                        tmp_path: Path) -> None:
    made = xport()
    made.handle(mail("a@far.test"))
    sendmail.does("sys.exit(67)")
    made.handle(mail("b@far.test"))
    log = (tmp_path / "spool/logs/mail.log").read_text()
    assert f"to=<a@far.test>, relay={sendmail.path}" in log and "status=sent" in log
    assert "to=<b@far.test>" in log and "dsn=5.1.1, status=bounced (exit code 67)" in log
    events = (tmp_path / "spool/logs/events.log").read_text()
    assert all(f'"event": {number}' in events for number in (7501, 7503, 7505))


def test_words_of_a_command() -> None:
    assert words_of("/x -f{sender} {recipients} -end", "s@h", ("{sender}", "b")) == (
        "/x", "-fs@h", "{sender}", "b", "-end")


@pytest.mark.parametrize("command", [
    "sendmail {recipients}", "/usr/sbin/sendmail -t", "/x{recipients}"])
def test_a_command_without_path_or_recipients_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "omq.conf").write_text(f"[mail]\nxport_command = {command}\n")
    with pytest.raises(ConfigError, match="xport_command"):
        load_settings(tmp_path)


@pytest.mark.parametrize("sender", ["s@here.test", ""])
def test_debians_sendmail_takes_it(xport: Any, mail: Any, tmp_path: Path, sender: str) -> None:
    """That of Postfix, with a queue of its own: the file there has sender, recipients and text."""
    program = found("usr/sbin/sendmail", "postfix")
    if os.geteuid():
        pytest.skip("Postfix must be run as root")
    postfix = Postfix(tmp_path / "postfix", 9)
    (tmp_path / "postfix").mkdir()
    postfix.make()
    environment = software.environment(MAIL_CONFIG=str(tmp_path / "postfix/conf"))
    wrapper = tmp_path / "real"
    wrapper.write_text("#!/bin/sh\n" + "".join(
        f"export {name}='{environment[name]}'\n" for name in ("MAIL_CONFIG", "LD_LIBRARY_PATH")
        if name in environment) + f'exec {program} "$@"\n')
    wrapper.chmod(0o755)
    made = xport(xport_command=f"{wrapper} -i -f {{sender}} -- {{recipients}}")
    assert made.handle(mail("a@far.test", "b@far.test", sender=sender)) == Done()
    (file,) = (tmp_path / "postfix/queue/maildrop").iterdir()
    said = subprocess.run([program.with_name("postcat"), str(file)], env=environment,
                          capture_output=True, check=True).stdout
    lines = said.splitlines()
    assert b"sender: " + sender.encode() in lines
    assert [each for each in lines if each.startswith(b"recipient: ")] == [
        b"recipient: a@far.test", b"recipient: b@far.test"]
    start = lines.index(b"Subject: x")
    assert lines[start:start + 5] == BODY.splitlines()


def test_debians_sendmail_that_fails_defers(xport: Any, mail: Any, tmp_path: Path) -> None:
    """No configuration where it is told to look: it says so with a code of sysexits.h."""
    program = found("usr/sbin/sendmail", "postfix")
    made = xport(xport_command=f"{program} -C {tmp_path}/none -i -f {{sender}} -- {{recipients}}")
    answer = made.handle(mail("a@far.test"))
    assert isinstance(answer, Defer)
