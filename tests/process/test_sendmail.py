"""omq-sendmail as real programs use it: cron, PHP, git, s-nail, mutt; and what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.peers import software
from tests.process.sendmail_world import MailHost, content, mail_host, need
from tests.process.test_service_commands import WAIT_S
from tests.unit.services.mail.real import found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailHost]:
    with mail_host(tmp_path_factory.mktemp("sendmail")) as made:
        yield made


def run(*words: object, text: str = "", environment: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(each) for each in words], input=text.encode(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT_S,
                          check=False, env={**os.environ, **(environment or {})})
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()


def test_php_mail(host: MailHost) -> None:
    php = need("php", "php-cli")
    said = run(php, "-d", f"sendmail_path={host.sendmail} -t -i", "-r",
               'var_dump(mail("php@here.test", "from php", "one\n.\ntwo\n", "X-Mine: 1", '
               '"-fshop@here.test"));')
    assert "bool(true)" in said
    mail = host.mail("php")
    assert mail["Subject"] == "from php" and mail["X-Mine"] == "1"
    assert mail["Return-Path"] == "<shop@here.test>"
    assert content(mail) == "one\n.\ntwo\n", "the dot is the mail's with -i"


def test_git_send_email(host: MailHost, tmp_path: Path) -> None:
    git = need("git", "git-email")
    if not Path("/usr/lib/git-core/git-send-email").exists():
        pytest.skip("no git send-email: apt-get install git-email")
    home = {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Ann",
            "GIT_AUTHOR_EMAIL": "ann@here.test", "GIT_COMMITTER_NAME": "Ann",
            "GIT_COMMITTER_EMAIL": "ann@here.test"}
    run(git, "init", "--quiet", tmp_path / "tree", environment=home)
    for number in (1, 2):
        run(git, "-C", tmp_path / "tree", "commit", "--quiet", "--allow-empty", "-m",
            f"change {number}", environment=home)
    (tmp_path / "tree/file").write_text("a line\n")
    run(git, "-C", tmp_path / "tree", "add", "file", environment=home)
    run(git, "-C", tmp_path / "tree", "commit", "--quiet", "-m", "the file", environment=home)
    run(git, "-C", tmp_path / "tree", "send-email", "--quiet", "--confirm=never", "-1",
        "--to=git@here.test", "--cc=copies@here.test", "--from=ann@here.test",
        "--envelope-sender=ann@here.test", f"--smtp-server={host.sendmail}", environment=home)
    mail = host.mail("git")
    assert mail["Subject"] == "[PATCH] the file" and "+a line" in content(mail)
    assert host.mail("copies")["Message-ID"] == mail["Message-ID"]


def test_s_nail(host: MailHost, tmp_path: Path) -> None:
    mailer = need("s-nail", "s-nail")
    run(mailer, "-:/", "-S", f"mta=file://{host.sendmail}", "-S", "expandaddr", "-s", "by s-nail",
        "-r", "me@here.test", "-b", "hidden@here.test", "snail@here.test", text="hello\n",
        environment={"HOME": str(tmp_path)})
    mail, hidden = host.mail("snail"), host.mail("hidden")
    assert mail["Subject"] == hidden["Subject"] == "by s-nail"
    assert mail["Bcc"] is None and hidden["Bcc"] is None


def test_mutt(host: MailHost, tmp_path: Path) -> None:
    """With an attachment, 8-bit text, a blind copy and an envelope sender of its own."""
    mutt = found("usr/bin/mutt", "mutt")
    (tmp_path / "rc").write_text(
        f'set sendmail="{host.sendmail} -oem -oi"\nset from="Mü <me@here.test>"\n'
        'set use_envelope_from=yes\nset envelope_from_address="bounces@here.test"\n'
        'set charset="utf-8"\nset send_charset="utf-8"\nset use_8bitmime=yes\nset allow_8bit=yes\n'
        "unset record\nset copy=no\n")
    (tmp_path / "data").write_bytes(bytes(range(256)))
    run(mutt, "-F", tmp_path / "rc", "-n", "-s", "by mutt", "-b", "muttblind@here.test", "-a",
        tmp_path / "data", "--", "mutt@here.test", text="one\n.\nzwölf\n",
        environment={**software.environment(), "HOME": str(tmp_path), "TERM": "dumb"})
    mail, blind = host.mail("mutt"), host.mail("muttblind")
    assert mail["Subject"] == blind["Subject"] == "by mutt" and mail["Bcc"] is None
    assert mail["From"] == "Mü <me@here.test>" and mail["Return-Path"] == "<bounces@here.test>"
    text, data = mail.iter_parts()
    assert text.get_content().replace("\r\n", "\n") == "one\n.\nzwölf\n"
    assert data.get_content() == bytes(range(256))


def test_cron(host: MailHost, tmp_path: Path) -> None:
    """In a mount namespace of its own: it starts /usr/sbin/sendmail, whatever that is here."""
    cron = need("cron", "cron")
    if os.geteuid():
        pytest.skip("cron needs root")
    for folder in ("sbin", "tabs", "etc.d"):
        (tmp_path / folder).mkdir()
    shutil.copy(cron, tmp_path / "sbin/cron")
    shutil.copy(host.sendmail, tmp_path / "sbin/sendmail")
    tab = tmp_path / "tabs/root"
    tab.write_text("MAILTO=cronuser@here.test\n@reboot echo from cron; echo . ; echo the end\n")
    tab.chmod(0o600)
    (tmp_path / "crontab").touch()
    script = tmp_path / "script"
    script.write_text(
        "set -e\nmount --make-rprivate /\n"
        f"mount --bind {tmp_path}/sbin /usr/sbin\nmount -t tmpfs tmpfs /run\n"
        f"mount --bind {tmp_path}/tabs /var/spool/cron/crontabs\n"
        f"mount --bind {tmp_path}/etc.d /etc/cron.d\nmount --bind {tmp_path}/crontab /etc/crontab\n"
        "exec /usr/sbin/cron -f\n")
    daemon = subprocess.Popen(["unshare", "--mount", "sh", script])
    try:
        mail = host.mail("cronuser")
    finally:
        daemon.terminate()
        daemon.wait(WAIT_S)
    assert content(mail) == "from cron\n.\nthe end\n"
    assert "(Cron Daemon)" in mail.as_string() and "echo from cron" in mail["Subject"]


def test_smtp_on_standard_input(host: MailHost) -> None:
    said = host.give("-bs", text=(
        "EHLO me\r\nRCPT TO:<a@here.test>\r\nMAIL FROM:<bs@here.test> BODY=8BITMIME\r\n"
        "RCPT TO:<session@here.test>\r\nRCPT TO:<a@b>c>\r\nDATA\r\nSubject: bs\r\n\r\n..dot\r\n"
        ".\r\nNOOP\r\nMAIL FROM:<>\nRCPT TO:<session@here.test>\nDATA\nSubject: lf\n\nx\n.\n"
        "QUIT\n"))
    codes = [line[:3] for line in said.splitlines() if line[3:4] == " "]
    assert codes == ["220", "250", "503", "250", "250", "553", "354", "250", "250", "250", "250",
                     "354", "250", "221"]
    first, second = sorted(host.mails("session", 2), key=lambda each: str(each["Subject"]))
    assert first["Subject"] == "bs" and content(first) == ".dot\n"
    assert second["Return-Path"] == "<>"


def test_a_session_ends_after_too_many_errors(host: MailHost) -> None:
    said = host.give("-bs", text="NONSENSE\r\n" * 100 + "x" * 10_000 + "\r\n", code=65)
    assert said.count("500 ") < 30 and "421 " in said


def test_options_of_forty_years(host: MailHost) -> None:
    """Each is taken; what it says of another program's work means nothing."""
    host.give("-oi", "-oem", "-odb", "-om", "-i", "-O", "DeliveryMode=b", "-B8BITMIME", "-h5", "-U",
              "-G", "-n", "-v", "-N", "never", "-R", "hdrs", "-V", "an-id", "-d0.1", "-L", "tag",
              "-Am", "-F", "Ödön  \tK.\r\nX: 1", "-fboss", "old@here.test", "-x")
    mail = host.mail("old")
    assert mail["Return-Path"] == "<boss@mx.here.test>"
    assert mail["From"] == "Ödön K. X: 1 <boss@mx.here.test>" or "Ödön" in str(mail["From"])
    assert mail["X"] is None


def test_recipients_and_dots(host: MailHost) -> None:
    text = "To: header@here.test\nBcc: bcc@here.test\nSubject: x\n\nfirst\n.\nsecond\n"
    host.give("argument@here.test", text=text)
    assert content(host.mail("argument")) == "first\n", "a dot ends it without -i"
    assert not host.files("header") and not host.files("bcc")
    host.give("-t", "-i", "both@here.test", text=text)
    assert content(host.mail("header")) == "first\n.\nsecond\n"
    assert host.mail("bcc")["Bcc"] is None and host.mail("both")


def test_exit_codes(host: MailHost, tmp_path: Path) -> None:
    assert "no recipient" in host.give(code=64)
    assert "no recipient" in host.give("-t", text="Subject: x\n\nx\n", code=64)
    assert host.give("-Z", "a@here.test", code=64)
    assert "control character" in host.give("a\x07b@here.test", code=64)
    assert host.give("-bd", code=64)
    assert "omq-sendmail" in host.give(
        "--spool", str(tmp_path / "none"), "a@here.test", code=66)
    assert "more than" in host.give("a@here.test", text=b"x" * (33 << 20), code=65)


def test_an_address_is_never_an_option(host: MailHost) -> None:
    host.give("-i", "-f", "me@here.test", "--", "-bp@here.test")
    log = host.spool / "logs/mail.log"
    host.instance.wait("it was a recipient", lambda: "to=<-bp@here.test>" in log.read_text())


def test_mailq_and_newaliases(host: MailHost) -> None:
    host.instance.run("omoff", "local")
    host.give("-f", "me@here.test", "queued@here.test")
    said = ""

    def listed() -> bool:
        nonlocal said
        said = host.give("-bp")
        return "on LOCAL" in said
    host.instance.wait("it waits", listed)
    assert "me@here.test" in said and "queued@here.test" in said and "in 1 Request." in said
    host.instance.run("omon", "local")
    assert host.mail("queued")
    host.instance.wait("nothing waits", lambda: host.give("-bp") == "Mail queue is empty\n")
    assert "nothing to build" in host.give("-bi")
    host.give("-q")
    host.give("-q15m")


def test_names_of_links(host: MailHost, tmp_path: Path) -> None:
    """mailq and newaliases are what the script is when it is called so."""
    link = tmp_path / "mailq"
    link.write_text(f"#!{sys.executable}\nimport sys\nfrom omq.cli.launch import script\n"
                    "sys.exit(script())\n")
    link.chmod(0o755)
    assert run(link, environment={"OMQ_SPOOL": str(host.spool)}) == "Mail queue is empty\n"


def test_the_log_has_the_user_and_the_way(host: MailHost) -> None:
    said = host.give("-v", "logged@here.test")
    mail_id = said.split(":")[1].strip()
    assert f"id {mail_id}" in str(host.mail("logged")["Received"])
    log = (host.spool / "logs/mail.log").read_text()
    assert "omq/pickup[" in log and f"{mail_id}: uid={os.getuid()} from=<" in log
    host.instance.wait("it is told", lambda: "logged" in host.instance.run(
        "omqlog", "--mail", mail_id))


def test_without_mail_drop_the_manager_is_asked(host: MailHost) -> None:
    host.instance.run("omoff", "drop")
    try:
        host.give("-f", "me@here.test", "direct@here.test")
        assert host.mail("direct")["Return-Path"] == "<me@here.test>"
    finally:
        host.instance.run("omon", "drop")
