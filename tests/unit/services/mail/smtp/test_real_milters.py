"""Milters of others, as Debian has them: OpenDKIM signs and verifies, OpenDMARC refuses, rspamd
refuses, marks and holds, clamav-milter refuses and holds what has a signature."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.bench.peers import software
from tests.unit.services.mail.real import found
from tests.unit.services.mail.smtp.conftest import TIMEOUT_S, Running
from tests.unit.services.mail.smtp.test_milter import send
from tests.waiting import listens, until

# What changes by so little as a space breaks the simple canonicalization.
TEXT = (b"From: a@here.test\r\nTo:  b@here.test\r\nSubject: two  spaces\r\n\tand a fold \r\n"
        b"X:none\r\n\r\nhello  \r\n\r\n.dot\r\n\r\n")
OPENDKIM = "usr/sbin/opendkim", "opendkim"


@contextmanager
def milter(home: Path, command: list[str | Path]) -> Iterator[str]:
    """The program runs with its socket in `home`; where it listens."""
    place = home / "socket"
    with (home / "log").open("wb") as log:
        program = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(partial(listens, place), lambda: (home / "log").read_text())
        yield f"unix:{place}"
    finally:
        program.kill()  # they take seconds to hear SIGTERM
        program.wait(TIMEOUT_S)


@contextmanager
def opendkim(home: Path, key: str, **options: str) -> Iterator[str]:
    home.mkdir()
    hosts = home / "hosts"
    hosts.write_text("127.0.0.1\n" if options["Mode"] == "s" else "192.0.2.1\n")
    (home / "key.pem").write_text(key)
    (home / "key.pem").chmod(0o600)
    conf = {"Socket": f"local:{home}/socket", "Domain": "here.test", "Selector": "sel",
            "InternalHosts": str(hosts), "Syslog": "no", "RequireSafeKeys": "no",
            "Canonicalization": "simple/simple", "PidFile": str(home / "pid"), **options}
    if options["Mode"] == "s":
        conf["KeyFile"] = str(home / "key.pem")
    (home / "conf").write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
    with milter(home, [found(*OPENDKIM), "-f", "-x", home / "conf"]) as place:
        yield place


@pytest.fixture
def key(tmp_path: Path) -> tuple[str, str]:
    """A private key as PEM, and the file with its public one that stands for the DNS."""
    found(*OPENDKIM)
    made = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True)
    public = subprocess.run(["openssl", "rsa", "-pubout"], input=made.stdout, check=True,
                            capture_output=True).stdout.decode()
    text = "".join(public.splitlines()[1:-1])
    keys = tmp_path / "keys"
    keys.write_text(f"sel._domainkey.here.test v=DKIM1; k=rsa; p={text}\n")
    return made.stdout.decode(), str(keys)


@pytest.mark.parametrize("damaged", [False, True])
def test_opendkim_signs_and_verifies(
        server: Callable[..., Running], tmp_path: Path, key: tuple[str, str], *, damaged: bool
        ) -> None:
    """The signature of one is right for the other: no byte that counts was changed."""
    with ExitStack() as stack:
        signer = stack.enter_context(opendkim(tmp_path / "s", key[0], Mode="s"))
        verifier = stack.enter_context(opendkim(
            tmp_path / "v", key[0], Mode="v", AuthservID="mx.test", AlwaysAddARHeader="yes",
            TestPublicKeys=key[1]))
        running = server(smtp_milters=f"{signer} {verifier}")
        assert send(running, text=TEXT, sender="a@here.test") == "250"
        ((_, text, _, _),) = running.manager.puts
        assert b"\r\nDKIM-Signature: v=1; a=rsa-sha256; c=simple/simple; d=here.test" in text
        assert b"Authentication-Results: mx.test;" in text and b"dkim=pass" in text
        assert text.endswith(TEXT)
        if damaged:
            running.manager.puts.clear()
            assert send(running, sender="a@here.test", text=text[text.index(b"DKIM-Sig"):].replace(
                b"hello", b"hallo")) == "250"
            ((_, text, _, _),) = running.manager.puts
            assert b"dkim=fail" in text


def test_opendmarc_refuses_in_its_words(server: Callable[..., Running], tmp_path: Path) -> None:
    program = found("usr/sbin/opendmarc", "opendmarc")
    home = tmp_path / "d"
    home.mkdir()
    (home / "conf").write_text(
        f"Socket local:{home}/socket\nAuthservID mx.test\nRequiredHeaders true\nSyslog false\n"
        f"PidFile {home}/pid\nUserID root\nIgnoreHosts {home}/none\n")
    (home / "none").write_text("192.0.2.1\n")
    if os.geteuid():
        pytest.skip("opendmarc becomes another user: it must be started as root")
    with milter(home, [program, "-f", "-c", home / "conf"]) as place:
        running = server(smtp_milters=place)
        said = send(running, text=b"Subject: no sender\r\n\r\nx\r\n")
        assert said.startswith("550 5.7.") or said.startswith("554 5.7."), said
        assert not running.manager.puts


RSPAMD = """\
options {{
  pidfile = "{home}/pid"; filters = []; url_tld = "{home}/tld"; tempdir = "{home}";
  control_socket = "{home}/control mode=0600"; rrd = "{home}/rrd"; stats_file = "{home}/stats";
  hs_cache_dir = "{home}"; dns {{ nameserver = ["127.0.0.1:9"]; timeout = 1s; retransmits = 1; }}
}}
logging {{ type = "console"; level = "notice"; }}
actions {{ reject = 15; add_header = 6; }}
worker "rspamd_proxy" {{
  bind_socket = "{home}/socket mode=0600"; milter = yes; count = 1; {more}
  upstream "local" {{ default = yes; self_scan = yes; }}
}}
worker "controller" {{ bind_socket = "{home}/ctl mode=0600"; count = 1; }}
lua = "{home}/rules.lua";
"""
RULES = """\
rspamd_config.MONEY = {
  callback = function(task)
    return (task:get_header('Subject') or ''):find('money') ~= nil
  end, score = 7.0, group = 'here'}
"""
GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X\r\n"


@contextmanager
def rspamd(home: Path, more: str = "") -> Iterator[str]:
    """Its proxy alone, which looks at mail itself: a rule of the test's, and what is built in."""
    program = found("usr/bin/rspamd", "rspamd")
    home.mkdir()
    tree = program.parents[2]
    share = tree / "usr/share/rspamd"
    (home / "conf").write_text(RSPAMD.format(home=home, more=more))
    (home / "rules.lua").write_text(RULES)
    (home / "tld").write_text("com\ntest\n")
    places = {"SHAREDIR": share, "LUALIBDIR": share / "lualib", "RULESDIR": share / "rules",
              "PLUGINSDIR": share / "plugins", "DBDIR": home, "RUNDIR": home, "LOGDIR": home,
              "CONFDIR": home}
    known = software.environment()
    known["LD_LIBRARY_PATH"] += f":{tree}/usr/lib/rspamd"
    mine = ["-u", "root", "-g", "root", "-i"] if os.geteuid() == 0 else []
    with (home / "log").open("wb") as log:
        started = subprocess.Popen(
            [program, "-f", "-c", home / "conf", *mine,
             *(f"--var={name}={place}" for name, place in places.items())],
            stdout=log, stderr=log, cwd=home, env=known)
    try:
        until(partial(listens, home / "socket"), lambda: (home / "log").read_text())
        yield f"unix:{home}/socket"
    finally:
        started.terminate()  # it ends its own processes first
        started.wait(TIMEOUT_S)


def test_rspamd_refuses_marks_and_lets_pass(server: Callable[..., Running], tmp_path: Path) -> None:
    with rspamd(tmp_path / "r") as place:
        running = server(smtp_milters=place)
        assert send(running, text=b"Subject: x\r\n\r\n" + GTUBE).startswith("554 5.7.1 Gtube")
        assert send(running, text=TEXT) == "250"
        assert send(running, text=TEXT.replace(b"two", b"money")) == "250"
        plain, marked = (put[1][put[1].index(b"From:"):] for put in running.manager.puts)
    assert plain == TEXT, "not a byte of it is changed"
    assert b"X-Spam: Yes\r\n" in running.manager.puts[1][1]
    assert marked.replace(b"X-Spam: Yes\r\n", b"") == TEXT.replace(b"two", b"money")


def test_rspamd_has_a_mail_held(server: Callable[..., Running], tmp_path: Path) -> None:
    with rspamd(tmp_path / "r", "quarantine_on_reject = yes;") as place:
        running = server(smtp_milters=place)
        assert send(running, text=b"Subject: x\r\n\r\n" + GTUBE) == "250"
    ((queue, _, _, properties),) = running.manager.puts
    assert queue == "DEFER" and properties["mail.held"]


CLAMD = """\
LocalSocket {home}/clamd
DatabaseDirectory {home}/db
TemporaryDirectory {home}
Foreground yes
{user}
"""
CLAMAV_MILTER = """\
MilterSocket {home}/socket
ClamdSocket unix:{home}/clamd
TemporaryDirectory {home}
Foreground yes
OnInfected {what}
AddHeader Replace
{user}
{more}
"""


@contextmanager
def clamav(home: Path, what: str, more: str = "") -> Iterator[str]:
    """clamd with one signature of the test's, in place of the 200 MB of its own, and its milter."""
    daemon, program = found("usr/sbin/clamd", "clamav-daemon"), found(
        "usr/sbin/clamav-milter", "clamav-milter")
    (home / "db").mkdir(parents=True)
    (home / "db/test.ndb").write_text(f"Test.Money:0:*:{b'send money'.hex()}\n")
    user = "User root" if os.geteuid() == 0 else ""
    (home / "clamd.conf").write_text(CLAMD.format(home=home, user=user))
    (home / "milter.conf").write_text(CLAMAV_MILTER.format(
        home=home, what=what, user=user, more=more))
    running: list[subprocess.Popen[bytes]] = []
    with (home / "log").open("wb") as log:
        try:
            for command, place in ((daemon, "clamd"), (program, "socket")):
                conf = home / f"{'clamd' if command is daemon else 'milter'}.conf"
                running.append(subprocess.Popen([command, "-c", conf], stdout=log, stderr=log,
                                                env=software.environment()))
                until(partial(listens, home / place), lambda: (home / "log").read_text())
            yield f"unix:{home}/socket"
        finally:
            for each in running:
                each.kill()
                each.wait(TIMEOUT_S)


def test_clamav_refuses_what_it_knows_and_lets_pass(
        server: Callable[..., Running], tmp_path: Path) -> None:
    bad = TEXT.replace(b"hello", b"send money")
    with clamav(tmp_path / "c", "Reject", "RejectMsg it has %v") as place:
        running = server(smtp_milters=place)
        assert send(running, text=bad).startswith("550 5.7.1 it has Test.Money")
        assert send(running, text=TEXT) == "250"
    ((_, put, _, _),) = running.manager.puts
    head, _, text = put.partition(b"\r\n\r\n")
    assert b"\r\nX-Virus-Status: Clean" in head
    assert text == TEXT.partition(b"\r\n\r\n")[2]


def test_clamav_has_a_mail_held(server: Callable[..., Running], tmp_path: Path) -> None:
    with clamav(tmp_path / "c", "Quarantine") as place:
        running = server(smtp_milters=place)
        assert send(running, text=TEXT.replace(b"hello", b"send money")) == "250"
    ((queue, _, _, properties),) = running.manager.puts
    assert queue == "DEFER" and properties["mail.held"]


def test_arc_fields_stay(server: Callable[..., Running]) -> None:
    """Of others and in our name: who reads them verifies them. Authentication-Results in our name
    go all the same."""
    text = (b"ARC-Seal: i=1; a=rsa-sha256; cv=none; d=far.test; s=x; b=AA==\r\n"
            b"ARC-Message-Signature: i=1; a=rsa-sha256; d=far.test;\r\n\ts=x; b=B=\r\n"
            b"ARC-Authentication-Results: i=1; mx.test; spf=pass\r\n")
    running = server(smtp_relay_networks="192.0.2.0/24")
    assert send(running, text=text + b"Authentication-Results: mx.test; spf=pass\r\n" + TEXT
                ) == "250"
    ((_, put, _, _),) = running.manager.puts
    assert put.endswith(text + TEXT)
