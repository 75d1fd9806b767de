"""omq conf: what the daemons would refuse is refused here, with its key; nothing else is."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omq.base.errors import BadRequest, ConfigError, Exit
from omq.base.paths import shipped_conf
from omq.base.settings import KEYS
from omq.cli.setup import omq_conf
from tests.unit.services.mail.smtp.certificates import Certificates

Check = Callable[..., int]
HASH = ("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$"
        "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE")


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """check(omq_conf, routes_conf): the exit code."""
    conf = tmp_path / "conf"
    conf.mkdir()

    def run(keys: str = "", routes: str = "", show: str | None = None) -> int:
        sections = dict[str, str]()
        for line in keys.splitlines():
            section = KEYS[line.partition(" ")[0]].section
            sections[section] = f"{sections.get(section, '')}{line}\n"
        (conf / "omq.conf").write_text("".join(f"[{name}]\n{lines}"
                                               for name, lines in sections.items()))
        (conf / "routes.conf").write_text(routes)
        words = [] if show is None else ["--show", show] if show else ["--show"]
        return omq_conf.main([*words, "--conf", str(conf), "--spool", str(tmp_path / "spool")])

    return run


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], Path]:
    def make(text: str) -> Path:
        path = tmp_path / "secret"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return make


def test_all_keys_of_tls_users_names_and_commands(
        check: Check, secret: Callable[[str], Path], tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    certificates = Certificates(tmp_path)
    path = certificates.make("mx.test")
    users = secret(f"alice:{HASH}\n")
    user = getpass.getuser() if getpass.getuser() != "root" else "nobody"
    assert check(
        f"smtp_tls_certificate = {path}\nsubmission_users = {users}\nsubmission_port = 587\n"
        "submissions_port = 465\nsmtp_starttls = require\nunix_tls = encrypt\n"
        f"unix_tls_ca_file = {certificates.ca_file}\nunix_mx = yes\ndns_servers = 192.0.2.53\n"
        "delay_warning_s = 60\npipe_timeout_s = 60\n",
        f"[pipes]\nlist = {user} /bin/true {{recipient}}\n[peers]\nlists.test = pipe:list\n"
        "l.test = lmtp:/run/lmtp\n[tls]\n* = verify\n") == Exit.OK
    assert "nothing wrong" in capsys.readouterr().out


@pytest.mark.parametrize(("keys", "key"), [
    ("smtp_starttls = require\n", "smtp_tls_certificate"),
    ("smtp_tls_certificate = /nowhere/at/all\n", "smtp_tls_certificate"),
    ("smtp_tls_certificate = {broken}\n", "smtp_tls_certificate"),
    ("submission_port = 587\n", "submission_port"),
    ("submission_users = {broken}\n", "broken"),
    ("unix_auth_file = {broken}\n", "unix_auth_file"),
    ("unix_tls = verify\nunix_tls_ca_file = {broken}\n", "unix_tls_ca_file"),
    ("unix_mx = yes\ndns_servers = one.test\n", "dns_servers"),
])
def test_what_a_daemon_would_refuse(check: Check, secret: Callable[[str], Path], keys: str,
                                    key: str) -> None:
    path = secret("broken\n")
    with pytest.raises(ConfigError) as caught:
        check(keys.format(broken=path))
    assert caught.value.fields["key"] == key
    assert caught.value.fields["allowed"]


@pytest.mark.parametrize(("package", "keys", "named"), [
    ("argon2", "submission_users = {users}\n", "argon2-cffi"),
    ("dns.resolver", "unix_mx = yes\n", "dnspython"),
])
def test_a_package_that_is_missing_is_missed_where_it_is_needed(
        check: Check, secret: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, package: str,
        keys: str, named: str) -> None:
    """The minimal installation: without the extra omq-base[mail]."""
    for name in {package, package.partition(".")[0]}:
        monkeypatch.setitem(sys.modules, name, None)
    assert check() == Exit.OK
    with pytest.raises(ConfigError, match=named) as caught:
        check(keys.format(users=secret(f"alice:{HASH}\n")))
    assert "omq-base[mail]" in str(caught.value)


def test_what_counts_is_shown_with_its_default(check: Check, capsys: pytest.CaptureFixture[str]
                                               ) -> None:
    """A section in force: what is changed and what is not; sizes as they are written."""
    assert check("volatile_file_bytes = 128 MiB\nmessages_max = 5000\n", show="store") == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[store]"
    assert "volatile_file_bytes = 128 MiB    # default: 64 MiB" in lines
    assert "store_file_bytes = 64 MiB" in lines
    assert not any(line.startswith("messages_max") for line in lines)
    assert check(show="") == Exit.OK
    shown = [line.partition(" ")[0] for line in capsys.readouterr().out.splitlines()
             if " = " in line or line.endswith(" =")]
    assert sorted(shown) == sorted(KEYS)


def test_a_section_that_is_none_is_named(check: Check) -> None:
    with pytest.raises(BadRequest, match="journal"):
        check(show="stores")


CHANGED = {
    "omq.conf": "[mail]\nhostname = mx.test\nsmtp_listen_port = 2525\n[store]\n"
                "disk_reserve_bytes = 256M\n",
    "services.conf": "[drop]\nenabled = yes\n[local]\nbatch = 50\n",
    "routes.conf": "[local]\ndomains = x.test\nliterals = 127.0.0.1, ::1\nusers = *\n"
                   "[aliases]\nroot = admin\n[mine]\n",
}


def test_what_is_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in CHANGED.items():
        (tmp_path / name).write_text(text)
    assert omq_conf.main(["--changed", "--conf", str(tmp_path), "--spool", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert set(said) == {
        "omq.conf [store] disk_reserve_bytes = 256 MiB    # default: 128 MiB",
        "omq.conf [mail] hostname = mx.test    # default:",
        "services.conf [drop] enabled = yes    # shipped: no",
        "routes.conf [local] domains = x.test    # shipped: localhost, localhost.localdomain",
        "routes.conf [local] unknown_user = error    # shipped, and left out",
        "routes.conf [aliases] root = admin    # not in the shipped file",
        "routes.conf [aliases] mailer-daemon = postmaster    # shipped, and left out",
        "routes.conf [mine]    # not in the shipped file",
        *(f"routes.conf [{name}]    # shipped, and left out" for name in (
            "queues", "peers", "pipes", "mailboxes", "senders", "tls", "router", "languages",
            "recipient_maps", "sender_maps", "rewriting", "canonical_maps", "checks",
            "sender_peers", "peer_limits"))}


def test_a_shipped_configuration_has_no_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert omq_conf.main(["--changed", "--conf", str(shipped_conf())]) == 0
    assert capsys.readouterr().out == ""
