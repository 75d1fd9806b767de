"""Whose mailboxes are and how much they hold: [mailboxes] of routes.conf, with hostile owners."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import multiprocess
import pytest

from omq.base import modes
from omq.base.errors import ConfigError
from omq.base.settings import Settings
from omq.services.mail.local_delivery import (
    LocalDeliveryService,
    Posted,
    QuotaExceeded,
    publish_all,
)
from omq.services.mail.mailbox_owner import Owner, acting_as, check_root, give
from omq.services.mail.mailbox_quota import FILES_MAX, Quotas, _used, is_full, told_full
from omq.services.mail.mailbox_rules import MailboxRule
from omq.services.mail.maildir import Maildir
from omq.services.mail.routes import Destination
from omq.services.mail.routes_file import load_routes
from omq.services.mail.smtp_policy import Resolved, load_policy
from omq.services.readers.service import Defer, Done, Move

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives mailboxes to others")
NOBODY = pwd.getpwnam("nobody")
OWNER = Owner(NOBODY.pw_uid, NOBODY.pw_gid)
TEXT = b"Subject: x\r\n\r\nhello\r\n"
_fork = multiprocess.get_context("fork")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of root for mailboxes, which their owners can reach."""
    ours = True
    for folder in (tmp_path, *tmp_path.parents):
        if ours:  # pytest's
            folder.chmod(folder.stat().st_mode | 0o011)
        elif not folder.stat().st_mode & 1:
            pytest.skip(f"no other user may pass {folder}, the parent of the temporary folder")
        ours = ours and not folder.name.startswith("pytest-of-")
    made = tmp_path / "boxes"
    made.mkdir()
    made.chmod(modes.PASSAGE)
    return made


def routes(conf_dir: Path, mailboxes: str, users: str = "*") -> Any:
    (conf_dir / "routes.conf").write_text(
        f"[local]\ndomains = here.test, own.test\nusers = {users}\n[mailboxes]\n{mailboxes}\n")
    return load_routes(conf_dir)


def in_child(work: Callable[[], object]) -> None:
    """In a process of its own: it changes its user."""
    process = _fork.Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0


def files(box: Path) -> list[Path]:
    return sorted((box / "new").iterdir()) if (box / "new").exists() else []


# the rules


def test_the_first_rule_that_fits_counts(conf_dir: Path) -> None:
    rules = routes(conf_dir, "a* = - 3 KiB\nalice = - 1 KiB\n@own.test = - 2 KiB\n* = - 4 KiB"
                   ).mailboxes
    assert {name: rules.of(name).quota_bytes // 1024 for name in
            ("alice", "anna", "bob", "bob@own.test", "alice@own.test")} == {
        "alice": 1, "anna": 3, "bob": 4, "bob@own.test": 2, "alice@own.test": 2}
    assert rules.of("bob").owner is None
    assert not rules.has_owners


@pytest.mark.parametrize("line", [
    "alice = no-such-user-here", "alice =", "alice = - much", "alice = - 1", "@far.test = -",
    "a/b = -", "a b = -", "x@y..z = -",
])
def test_wrong_rules_are_refused(conf_dir: Path, line: str) -> None:
    with pytest.raises(ConfigError):
        routes(conf_dir, line)


def test_a_domain_that_has_a_rule_has_mailboxes_of_its_own(conf_dir: Path) -> None:
    found = routes(conf_dir, "@own.test = -", users="alice, carol@own.test")

    def box(address: str) -> str:
        destinations, failures = found.resolve(address)
        return str(destinations[0].address if destinations else failures[0].status)

    assert box("alice@here.test") == "alice"
    assert box("alice@own.test") == "5.1.1"
    assert box("Carol@OWN.test") == "carol@own.test"
    assert box("carol@here.test") == "5.1.1"
    assert box("postmaster@own.test") == "postmaster@own.test"
    assert box('"carol@own.test"@here.test') == "5.1.1"  # no way from one domain into another


# owners


@as_root
def test_a_mailbox_is_its_owners(root: Path, tmp_path: Path) -> None:

    def work() -> None:
        box = Maildir(root, "alice", OWNER)
        box.create()
        with acting_as(OWNER):
            file = box.prepare("1.a.omq", (TEXT,), again=False)
        assert file is not None
        assert publish_all([Posted(box, MailboxRule(OWNER), file)], Quotas(tmp_path)) == [None]
        assert (os.geteuid(), os.getegid()) == (0, os.getgid())

    in_child(work)
    (file,) = files(root / "alice")
    for path in (root / "alice", root / "alice/new", root / "alice/tmp", file):
        assert (path.stat().st_uid, path.stat().st_gid) == (OWNER.uid, OWNER.gid), path
    assert file.stat().st_mode & 0o777 == 0o600


@as_root
@pytest.mark.parametrize("folder", ["new", "tmp", "."])
def test_an_owners_link_leads_nowhere_where_he_may_not_write(
        root: Path, tmp_path: Path, folder: str) -> None:
    treasure = tmp_path / "treasure"
    for each in ("", "tmp", "new", "cur"):
        (treasure / each).mkdir(mode=0o755)
    errors = tmp_path / "errors"

    def work() -> None:
        box = Maildir(root, "alice", OWNER)
        box.create()
        link = root / "alice" / folder
        if folder == ".":
            for each in ("tmp", "new", "cur"):
                (root / "alice" / each).rmdir()
            (root / "alice").rmdir()
            link = root / "alice"
        else:
            link.rmdir()
        link.symlink_to(treasure / folder)
        try:
            with acting_as(OWNER):
                file = box.prepare("1.a.omq", (TEXT,), again=True)
            assert file is not None
            (error,) = publish_all([Posted(box, MailboxRule(OWNER), file)], Quotas(tmp_path))
        except OSError as refused:
            error = refused
        give(root / "alice", OWNER)
        errors.write_text(type(error).__name__)

    in_child(work)
    assert errors.read_text() in ("PermissionError", "FileNotFoundError")
    assert [each for each in treasure.rglob("*") if not each.is_dir()] == []
    assert treasure.stat().st_uid == 0


@as_root
@pytest.mark.parametrize(("mode", "uid"), [(0o777, 0), (0o720, 0), (0o711, OWNER.uid)])
def test_the_folder_of_others_mailboxes_is_roots_alone(
        tmp_path: Path, mode: int, uid: int) -> None:
    root = tmp_path / "boxes"
    root.mkdir()
    check_root(root / "absent", tmp_path)
    os.chown(root, 0, 0)
    root.chmod(modes.PASSAGE)
    check_root(root, tmp_path)
    root.chmod(mode)
    os.chown(root, uid, 0)
    with pytest.raises(ConfigError, match="maildir_root"):
        check_root(root, tmp_path)


def test_another_owner_needs_root(conf_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    with pytest.raises(ConfigError, match="not root"):
        routes(conf_dir, "alice = nobody")


def test_no_mailbox_is_roots(conf_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    with pytest.raises(ConfigError):
        routes(conf_dir, "alice = root")


# quotas


@pytest.fixture
def local(service: Callable[..., Any], message: Callable[..., Any], tmp_path: Path
          ) -> Callable[..., Any]:
    (tmp_path / "spool/run").mkdir(parents=True)

    def start(quota: str, **settings: Any) -> Callable[..., Any]:
        made = service(LocalDeliveryService, "local", "[local]\ndomains = here.test\n"
                       f"[mailboxes]\nalice = - {quota}\n", **settings)

        def deliver(*ids: str, text: bytes = TEXT, user: str = "alice") -> list[Any]:
            properties = {"mail.from": "s@far.test", "mail.to.LOCAL": user,
                          "mail.orig.LOCAL": f"{user}@here.test"}
            return list(made.handle_many([message(text, properties, queue="LOCAL", message_id=each)
                                          for each in ids]))

        return deliver

    return start


def test_a_full_mailbox_has_mail_wait_and_is_told_of(
        local: Callable[..., Any], tmp_path: Path) -> None:
    deliver, run = local("1 KiB"), tmp_path / "spool/run"
    assert deliver("aa", text=b"x" * 600) == [Done()]
    assert not is_full(run, "alice", 60)
    (later,) = deliver("bb", text=b"x" * 600)
    assert isinstance(later, Defer)
    assert later.reason.startswith("mailbox is full")
    assert is_full(run, "alice", 60)
    (file,) = files(tmp_path / "spool/mail/alice")
    file.unlink()  # its owner makes room
    assert deliver("bb", text=b"x" * 600) == [Done()]
    assert not is_full(run, "alice", 60)


def test_a_report_of_the_future_counts_for_nothing(tmp_path: Path) -> None:
    """The clock was set back since."""
    told_full(tmp_path, "alice", full=True)
    (report,) = tmp_path.iterdir()
    now = report.stat().st_mtime
    assert is_full(tmp_path, "alice", 60)
    os.utime(report, (now + 3600, now + 3600))
    assert not is_full(tmp_path, "alice", 60)


def test_room_is_given_once_within_a_batch(local: Callable[..., Any], tmp_path: Path) -> None:
    found = local("2 KiB")("aa", "bb", "cc", text=b"x" * 900)
    assert [type(each) for each in found] == [Done, Done, Defer]
    assert len(files(tmp_path / "spool/mail/alice")) == 2


def test_a_full_mailbox_may_refuse(local: Callable[..., Any]) -> None:
    deliver = local("1 KiB", mailbox_full="refuse")
    assert deliver("aa", text=b"x" * 900) == [Done()]
    (told,) = deliver("bb", text=b"x" * 900)
    assert isinstance(told, Move)
    assert told.new[0].properties["error.status"] == "5.2.2"


def test_what_never_fits_is_not_kept_waiting(local: Callable[..., Any], tmp_path: Path) -> None:
    (told,) = local("1 KiB")("aa", text=b"x" * 2000)
    assert isinstance(told, Move)
    assert told.new[0].properties["error.status"] == "5.2.2"
    assert not is_full(tmp_path / "spool/run", "alice", 60)  # smaller ones fit


def test_folders_beside_count_and_links_do_not(tmp_path: Path) -> None:
    box = Maildir(tmp_path, "alice")
    box.create()
    (box.path / ".Old/cur").mkdir(parents=True)
    (box.path / ".Old/cur/1").write_bytes(b"x" * 500)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "cur").mkdir(parents=True)
    (elsewhere / "cur/1").write_bytes(b"x" * 5000)
    (box.path / ".link").symlink_to(elsewhere)
    (box.path / "cur/2").symlink_to(elsewhere / "cur/1")
    quotas = Quotas(tmp_path)
    assert quotas.reserve(box.path, 400, 1000)
    assert not quotas.reserve(box.path, 400, 1000)
    quotas.delivered(box.path, whole=False)
    assert quotas.reserve(box.path, 400, 1000)  # nothing came of the first


def test_endless_small_files_are_a_full_mailbox(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FILES_MAX >= 100_000
    monkeypatch.setattr("omq.services.mail.mailbox_quota.FILES_MAX", 2)
    for number in range(3):
        (tmp_path / str(number)).touch()
    assert _used(((str(tmp_path), 0),), 1 << 30) == 1 << 30


def _is_waited_for(path: Path) -> bool:
    """Whether a process waits for a lock on this file (proc(5): /proc/locks)."""
    inode = f":{path.stat().st_ino}"
    return any("->" in line and line.split()[6].endswith(inode)
               for line in Path("/proc/locks").read_text().splitlines())


def test_two_deliveries_do_not_both_have_the_last_room(tmp_path: Path) -> None:
    """One holds the mailbox between counting and publishing; the other waits, and then counts."""
    box, quotas = Maildir(tmp_path, "alice"), Quotas(tmp_path)
    box.create()
    rule, outcome = MailboxRule(None, 1000), _fork.SimpleQueue()

    def other() -> None:
        file = box.prepare("2.b.omq", (b"x" * 600,), again=False)
        assert file is not None
        outcome.put("at the lock")
        (error,) = publish_all([Posted(box, rule, file)], Quotas(tmp_path))
        outcome.put(type(error).__name__)

    file = box.prepare("1.a.omq", (b"x" * 600,), again=False)
    assert file is not None
    with quotas.locked(["alice"]):
        process = _fork.Process(target=other)
        process.start()
        assert outcome.get() == "at the lock"
        while not _is_waited_for(tmp_path / "mailboxes.lock"):
            assert outcome.empty(), outcome.get()
        (box.path / "new/1.a.omq").write_bytes(b"x" * 600)
    assert outcome.get() == QuotaExceeded.__name__
    process.join()
    quotas.close()
    assert len(files(box.path)) == 1


def test_the_client_hears_of_a_full_mailbox(conf_dir: Path, tmp_path: Path) -> None:
    routes(conf_dir, "alice = - 1 KiB")
    spool = tmp_path / "spool"
    (spool / "run").mkdir(parents=True)
    found: Resolved = ([Destination("LOCAL", "alice", "alice@here.test")], [])
    for says, status in (("defer", "4.2.2"), ("refuse", "5.2.2")):
        policy = load_policy(Settings(mailbox_full=says), conf_dir, spool)
        assert policy.unreachable("alice@here.test", found) is None
        large = policy.unreachable("alice@here.test", found, 2000)
        assert large is not None
        assert large.status == "5.2.2"
        told_full(spool / "run", "alice", full=True)
        full = policy.unreachable("alice@here.test", found)
        assert full is not None
        assert full.status == status
        os.utime(spool / "run/mailbox-full.alice", (1, 1))  # long ago: it is tried again
        assert policy.unreachable("alice@here.test", found) is None
        told_full(spool / "run", "alice", full=False)


def test_a_lock_that_cannot_be_had_defers_those_with_a_quota_alone(tmp_path: Path) -> None:
    posted = []
    for name, quota in (("alice", 1000), ("bob", 0)):
        box = Maildir(tmp_path, name)
        box.create()
        file = box.prepare("1.a.omq", (TEXT,), again=False)
        assert file is not None
        posted.append(Posted(box, MailboxRule(None, quota), file))
    limited, free = publish_all(posted, Quotas(tmp_path / "absent"))
    assert isinstance(limited, FileNotFoundError)
    assert free is None
