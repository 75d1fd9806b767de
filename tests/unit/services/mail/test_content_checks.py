"""Header and body checks: what a file may say, what is looked at, what becomes of a mail."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omq.services.mail import content_checks
from omq.services.mail.check_file import PROGRAM_MAX, Action, CheckFile
from omq.services.mail.content_checks import Checked, CheckFailed, Checks
from omq.services.mail.mime_pieces import BODY_BYTES_MAX, NESTING_MAX, SEGMENT_BYTES_MAX, Pieces
from omq.services.mail.router import RouterService
from omq.services.mail.routes_file import load_routes
from omq.services.mail.watched_file import Watched
from omq.services.readers.service import Defer, Move
from tests.unit.services.mail.real import found, run

SCAN = 1 << 20
MAIL = (b"From: a@b.test\r\nSubject: make money\r\n fast\r\nX-Two: 1\r\nX-Two: 2\r\n\r\n"
        b"first\r\nsecond line\r\n.third\r\n")
MIME = b"\r\n".join((
    b"Content-Type: multipart/mixed;", b" boundary=\"out er\"", b"", b"preamble", b"--out er",
    b"Content-Type: text/plain", b"", b"text", b"--out er",
    b"Content-Type: application/octet-stream; name=bad.exe", b"", b"MZ", b"--out er",
    b"Content-Type: message/rfc822", b"", b"Subject: nested",
    b"Content-Type: multipart/alternative; boundary=in", b"", b"--in", b"X-Inner: 1", b"", b"deep",
    b"--in--", b"--out er--", b"epilogue", b""))


@pytest.fixture
def checked(conf_dir: Path, tmp_path: Path) -> Callable[..., Checked]:
    """checked(mail, header=text, ...): after checks by these files."""
    def make(text: bytes, **files: str) -> Checked:
        return made(conf_dir, tmp_path, **files).now(text, SCAN)

    return make


def made(conf_dir: Path, folder: Path, **files: str) -> Checks:
    lines = ""
    for name, rules in files.items():
        (folder / name).write_text(rules)
        lines += f"{name} = {folder}/{name}\n"
    (conf_dir / "routes.conf").write_text(f"[checks]\n{lines}")
    found = load_routes(conf_dir).checks
    assert found is not None
    return found


@pytest.mark.parametrize(("rule", "then"), [
    ("/^subject: make/ REJECT no money", {"refusal": "550 5.7.1 no money"}),
    ("/^subject: make/ REJECT 5.6.7 not this", {"refusal": "550 5.6.7 not this"}),
    ("/^subject: make/ REJECT", {"refusal": "550 5.7.1 the content is not taken"}),
    ("/^subject: (\\w+)/ REJECT no $1, $$1 or ${1}y",
     {"refusal": "550 5.7.1 no make, $1 or makey"}),
    ("/^subject: make/ DISCARD", {"discarded": True}),
    ("/^subject: make/ HOLD look at it", {"held": "look at it"}),
    ("/^subject: make/ REDIRECT spam@b.test", {"redirected": "spam@b.test"}),
    ("/^subject: make/ BCC spam@b.test", {"added": ("spam@b.test",)}),
    ("/^subject: make/ PREPEND X-Spam: yes",
     {"text": MAIL.replace(b"Subject", b"X-Spam: yes\r\nSubject")}),
    ("/^subject: (.*)/ REPLACE Subject: [$1]",
     {"text": MAIL.replace(b"make money\r\n fast", b"[make money  fast]")}),
    ("/^x-two: 2/ IGNORE", {"text": MAIL.replace(b"X-Two: 2\r\n", b"")}),
    ("/^x-two:/ STRIP", {"text": MAIL.replace(b"X-Two: 1\r\nX-Two: 2\r\n", b"")}),
    ("/money.fast|money. fast/ DISCARD", {"discarded": True}),  # the fold is looked at, too
    ("/^Subject/i DISCARD", {"discarded": True}), ("/^subject/i DISCARD", {}),
    ("/money$/m DISCARD", {"discarded": True}), ("/money$/ DISCARD", {}),
    ("/money.+fast/s DISCARD", {}), ("/money.+fast/ DISCARD", {"discarded": True}),
    ("!/^(from|subject|x-two)/ DISCARD", {}), ("!/^(from|subject)/ DISCARD", {"discarded": True}),
    ("|^subject: make| DISCARD", {"discarded": True}),
    ("if /^x-/\n/2$/ DISCARD\nendif", {"discarded": True}),
    ("if /^x-/\nif !/two/\n/2$/ DISCARD\nendif\nendif", {}),
    ("if !/^x-/\n/2$/ DISCARD\nendif\n", {}),
    ("/^subject/ DUNNO\n/make/ DISCARD", {}), ("/^subject/ OK\n/make/ DISCARD", {}),
    ("/^from/ PASS\n/make/ DISCARD", {}),
    ("/^from/ WARN\n/make/ DISCARD", {"discarded": True}),
    ("# a comment\n/^subject/\n  REJECT\n  in three lines",
     {"refusal": "550 5.7.1 in three lines"}),
    ("/^from/ HOLD\n/^x-two: 1/ IGNORE\n/^x-two: 2/ BCC c@b.test",
     {"held": "by HEADER:1", "added": ("c@b.test",),
      "text": MAIL.replace(b"X-Two: 1\r\n", b"")}),
    ("/second|first/ DISCARD", {}),
], ids=str)
def test_each_action_on_a_header(checked: Any, tmp_path: Path, rule: str, then: dict[str, Any]
                                 ) -> None:
    found = checked(MAIL, header=rule + "\n")
    if "held" in then:
        then = {**then, "held": then["held"].replace("HEADER", f"{tmp_path}/header")}
    assert replace(found, notes=()) == replace(Checked(MAIL), **then)


@pytest.mark.parametrize(("rule", "then"), [
    ("/^second/ REJECT", {"refusal": "550 5.7.1 the content is not taken"}),
    ("/^second line$/ IGNORE", {"text": MAIL.replace(b"second line\r\n", b"")}),
    ("/^second/ REPLACE other", {"text": MAIL.replace(b"second line", b"other")}),
    ("/^second/ PREPEND -- \\", {"text": MAIL.replace(b"second", b"-- \\\r\nsecond")}),
    ("/^\\.third/ REPLACE .", {"text": MAIL.replace(b".third", b".")}),
    ("/subject/ DISCARD", {}), ("/^$/ DISCARD", {})], ids=str)
def test_each_action_on_a_line_of_the_body(checked: Any, rule: str, then: dict[str, Any]) -> None:
    found = checked(MAIL, body=rule + "\n")
    assert replace(found, notes=()) == replace(Checked(MAIL), **then)


def test_what_a_mail_says_of_itself_makes_no_reply_longer_than_a_line(checked: Any) -> None:
    """RFC 5321, 4.5.3.1.5: 512 octets with the line's end."""
    mail = MAIL.replace(b"make money", b"make " + b"x" * 700)
    said = checked(mail, header="/^subject: make (.*)/ REJECT 5.6.7 no $1\n").refusal
    assert said.startswith("550 5.6.7 no xxx") and len(said) + 2 == 512


RULES = """\
# as Postfix has them
/^subject: make (money|time)/ REJECT no $1, nor ${1}
!/^(subject|x-|from)/ WARN not known
if /^x-/
/^x-case: A/i HOLD upper
/^x-case: a/ DISCARD lower
if !/^x-in/
/2$/ PREPEND Y: $$1
endif
/^x-in: (.)(.)/
  REPLACE X-In: $2$1
endif
|^from:.*@b[.]test| REDIRECT c@b.test
/^x-/ DUNNO
"""
LINES = ["Subject: make money", "SUBJECT: MAKE TIME", "Subject: other", "To: x", "X-Case: A",
         "X-Case: a", "X-Two: 2", "X-In: ab2", "X-In: 2", "From: a@b.test", "From: a@bxtest",
         "X-One: 1", "x-case:", "subject: make"]


def test_what_a_file_says_is_what_postfix_reads_in_it(tmp_path: Path) -> None:
    """By Postfix's own postmap, which has no expression that RE2 lacks here."""
    program = found("usr/sbin/postmap", "postfix")
    (tmp_path / "main.cf").write_text("compatibility_level = 3.6\nmail_owner = daemon\n"
                                      "setgid_group = mail\n")
    path = tmp_path / "rules"
    path.write_text(RULES)
    rules = CheckFile(Watched("rules", path), of_fields=True).rules()
    for line in LINES:
        theirs = run([program, "-c", tmp_path, "-q", line, f"regexp:{path}"])
        assert "fatal" not in theirs.stderr, theirs.stderr
        ours = rules.first(line, lambda: None)
        assert ("" if ours is None else f"{ours.action.value} {ours.text}".strip()) == (
            " ".join(theirs.stdout.split())), line


@pytest.mark.parametrize("rule", [
    "^subject REJECT", "/subject REJECT", "/subject/ REFUSE", "/subject/", "/(/ REJECT",
    "/subject/x REJECT", "/a(?=b)/ REJECT", r"/(a)\1/ REJECT", "/a/ FILTER smtp:[x]:25",
    "/a/ REDIRECT nobody@", "/a/ REDIRECT $1@b.test", "/(a)/ REJECT $2", "!/(a)/ REJECT $1",
    "/a/ REJECT $x", "/a/ PREPEND no field", "/a/ PREPEND", "/a/ REJECT \xe4", "/a/ REJECT \x07",
    f"/a/ REJECT {'x' * 501}", f"/{'a' * 4097}/ REJECT", "/(?:.{0,500}){1,20}z/ REJECT",
    "/(?:.{0,900}){1,6}z/ REJECT", "if /a/", "endif", "if /a/\n/b/ OK", "if /a/ x\nendif",
    "/a/ OK\n" * 1001, "/a/ WARN" + "\x00"])
def test_a_wrong_line_is_named_and_the_mail_waits(checked: Any, tmp_path: Path, rule: str) -> None:
    with pytest.raises(CheckFailed) as error:
        checked(MAIL, header=f"/harmless/ OK\n{rule}\n")
    assert f"{tmp_path}/header:" in str(error.value)


def test_a_file_that_is_away_half_written_or_replaced(
        conf_dir: Path, tmp_path: Path) -> None:
    checks = made(conf_dir, tmp_path, header="/make/ DISCARD\n")
    assert checks.now(MAIL, SCAN).discarded
    for content in ("/make/ DISCARD", ""):
        (tmp_path / "new").write_text(content)
        os.replace(tmp_path / "new", tmp_path / "header")
        with pytest.raises(CheckFailed):
            checks.now(MAIL, SCAN)
    (tmp_path / "header").unlink()
    with pytest.raises(CheckFailed):
        checks.now(MAIL, SCAN)
    (tmp_path / "header").write_text("/nothing/ DISCARD\n")
    assert not checks.now(MAIL, SCAN).discarded


def test_checks_have_their_time(conf_dir: Path, tmp_path: Path) -> None:
    """What comes after the time is no answer, however many expressions are left."""
    checks = made(conf_dir, tmp_path, header="/a/ OK\n")
    with pytest.raises(CheckFailed) as error:
        checks.of(MAIL, SCAN, time.monotonic() - 1)
    assert "no end in 10" in str(error.value)


def test_the_time_is_looked_at_before_each_expression(
        conf_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        """Each look at the clock finds a second gone."""

        now = 0.0

        def monotonic(self) -> float:
            self.now += 1.0
            return self.now

    checks = made(conf_dir, tmp_path, header="/x/ OK\n" * 500)
    monkeypatch.setattr(content_checks, "time", Slow())
    with pytest.raises(CheckFailed):
        checks.of(MAIL, SCAN, 100.0)


@pytest.mark.parametrize("pattern", [
    "(a+)+$", "(a|aa)+$", "(.*)(.*)(.*)(.*)(.*)b", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_that_would_not_end_elsewhere(checked: Any, pattern: str) -> None:
    """Python's own engine needs longer than the world for these."""
    text = b"Subject: " + b"a" * 90_000 + b"!\r\n\r\n"
    assert checked(text, header=f"/{pattern}/ WARN\n").text == text


def test_large_repetitions_are_refused_with_their_size(checked: Any) -> None:
    with pytest.raises(CheckFailed) as error:
        checked(MAIL, header="/(?:.{0,1000})z/ REJECT\n")
    assert f"allowed are {PROGRAM_MAX}" in str(error.value)


# what is looked at


def shown(text: bytes) -> list[tuple[str, bytes]]:
    return [(each.kind.value, text[each.start : each.end]) for each in Pieces(text, SCAN)]


def test_parts_and_attached_messages() -> None:
    found = [(kind, line) for kind, line in shown(MIME) if kind != "body"]
    assert found == [
        ("header", b'Content-Type: multipart/mixed;\r\n boundary="out er"\r\n'),
        ("mime_header", b"Content-Type: text/plain\r\n"),
        ("mime_header", b"Content-Type: application/octet-stream; name=bad.exe\r\n"),
        ("mime_header", b"Content-Type: message/rfc822\r\n"),
        ("nested_header", b"Subject: nested\r\n"),
        ("nested_header", b"Content-Type: multipart/alternative; boundary=in\r\n"),
        ("mime_header", b"X-Inner: 1\r\n")]
    assert [line for kind, line in shown(MIME) if kind == "body"] == [
        b"preamble\r\n", b"text\r\n", b"MZ\r\n", b"deep\r\n", b"epilogue\r\n"]


def test_an_attachment_is_refused_by_its_name(checked: Any) -> None:
    rule = r"/^content-(type|disposition):.*name\s*=\s*\"?.*\.exe/ REJECT no programs" + "\n"
    assert checked(MIME, header=rule).refusal == "550 5.7.1 no programs"
    assert not checked(MIME, header=rule, mime_header="/none/ OK\n").refusal
    assert checked(MIME, mime_header=rule).refusal
    assert not checked(MIME, nested_header=rule).refusal
    assert checked(MIME, header="/^subject: nested/ DISCARD\n").discarded
    assert checked(MIME, nested_header="/^subject: nested/ DISCARD\n").discarded


def test_what_is_not_to_be_looked_at_in_parts(conf_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "h").write_text("/exe|nested/ DISCARD\n")
    (conf_dir / "routes.conf").write_text(
        f"[checks]\nheader = {tmp_path}/h\nmime_header =\nnested_header =\n")
    checks = load_routes(conf_dir).checks
    assert checks is not None and not checks.now(MIME, SCAN).discarded


def test_a_part_behind_a_large_one_is_seen() -> None:
    large = MIME.replace(b"MZ\r\n", b"MZ" * 60 + b"\r\n--no boundary\r\n" + b"A" * 99 * 1000
                         + b"\r\n" + b"line\r\n" * 200_000)
    found = shown(large)
    assert ("mime_header", b"X-Inner: 1\r\n") in found
    assert sum(len(line) for kind, line in found if kind == "body") < 3 * SEGMENT_BYTES_MAX


def test_many_parts_are_bounded() -> None:
    part = b"--b\r\nX: 1\r\n\r\n" + b"text\r\n" * 5000
    text = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + part * 100
    found = shown(text)
    assert sum(kind == "mime_header" for kind, _ in found) == 100
    assert sum(len(line) for kind, line in found if kind == "body") <= BODY_BYTES_MAX + 10


def test_levels_without_end() -> None:
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (each, each)
                    for each in range(5000))
    pieces = Pieces(deep, SCAN)
    found = list(pieces)
    assert len(pieces._boundaries) == NESTING_MAX and len(found) > NESTING_MAX
    messages = b"Content-Type: message/rfc822\r\n\r\n" * 5000
    assert len(list(Pieces(messages, SCAN))) > NESTING_MAX


@pytest.mark.parametrize("value", [
    b"multipart/mixed; boundary=out", b"MULTIPART / Mixed; x=y; BOUNDARY=\"out\"",
    b"multipart/mixed;\r\n\tboundary=out; charset=x", b"multipart/mixed; boundary=\"o\\ut\"",
    b"multipart/mixed; boundary=\"out  \""])
def test_spellings_of_a_boundary(value: bytes) -> None:
    text = b"Content-Type: " + value + b"\r\n\r\n--out\r\nX-Part: 1\r\n\r\n--out--\r\nend\r\n"
    assert ("mime_header", b"X-Part: 1\r\n") in shown(text)


def test_pieces_do_not_overlap(nasty: bytes) -> None:
    last = 0
    for each in Pieces(nasty, SCAN):
        assert last <= each.start < each.end <= len(nasty)
        last = each.end


def test_nothing_else_changes(checked: Any, nasty: bytes) -> None:
    found = checked(nasty, header="/^never/ IGNORE\n", body="/^never this/ IGNORE\n")
    assert found.text is nasty


@pytest.mark.parametrize("action", ["WARN", "INFO"])
def test_notes_are_bounded_and_in_one_line(checked: Any, action: str) -> None:
    text = b"X: " + b"y\r\n " * 300 + b"\r\n" + b"Z: \x1b[31m\r\n" * 100 + b"\r\n"
    notes = checked(text, header=f"/./ {action} look\n").notes
    assert len(notes) == content_checks.NOTES_MAX
    assert all(each.startswith(action.lower()) and each.endswith(": look") for each in notes)
    assert all(each.isprintable() and len(each) < 500 for each in notes)


def test_every_action_is_tried() -> None:
    source = Path(__file__).read_text()
    assert not [each.value for each in Action if not re.search(rf"[ \"]{each.value}\b", source)]


# at ROUTER

LOCAL = {"mail.from": "a@b.test", "mail.to": "c@b.test\nd@far.test"}


@pytest.fixture
def routed(service: Callable[..., Any], message: Callable[..., Any], tmp_path: Path
           ) -> Callable[..., Any]:
    def make(rule: str, more: dict[str, str] | None = None, **settings: Any) -> Any:
        (tmp_path / "h").write_text(rule + "\n")
        router = service(RouterService, "router",
                         f"[local]\ndomains = b.test\n[checks]\nheader = {tmp_path}/h\n",
                         **settings)
        return router.handle(message(MAIL, LOCAL | (more or {})))

    return make


def test_a_program_here_is_told_what_is_refused(routed: Any) -> None:
    (report,) = routed("/make/ REJECT no money").new
    assert report.queues == ("ERRMGR",)
    assert report.properties["error.to"] == "c@b.test\nd@far.test"
    assert report.properties["error.status"] == "5.7.1\n5.7.1"
    assert report.properties["error.reason"] == "no money\nno money"


def test_what_is_held_is_held_once(routed: Any) -> None:
    (held,) = routed("/make/ HOLD look").new
    assert held.queues == ("DEFER",) and held.properties["mail.held"] == "look"
    assert held.properties["mail.to"] == LOCAL["mail.to"] and held.body == MAIL
    released = routed("/make/ HOLD look", dict(held.properties))
    assert {queue for each in released.new for queue in each.queues} == {"LOCAL", "UNIX"}


@pytest.mark.parametrize("name", ["mail.peer", "mail.about"])
def test_what_came_otherwise_is_not_looked_at_again(routed: Any, name: str) -> None:
    assert routed("/make/ DISCARD", {name: "192.0.2.1"}).new


def test_discarded_added_and_redirected(routed: Any) -> None:
    assert routed("/make/ DISCARD") == Move((), ())
    many = [each.properties for each in routed("/make/ BCC x@y.test").new]
    assert sum(each.get("mail.to.UNIX", "").count("x@y.test") for each in many) == 1
    (only,) = routed("/make/ REDIRECT x@y.test").new
    assert only.properties["mail.to.UNIX"] == "x@y.test" and only.queues == ("UNIX",)


def test_a_file_that_is_wrong_has_mail_wait(routed: Any, logged: Callable[[], list[int]]) -> None:
    assert isinstance(routed("/make/ NONSENSE"), Defer)
    assert 1552 in logged()


def test_with_soft_bounce_a_refusal_waits(routed: Any) -> None:
    assert isinstance(routed("/make/ REJECT", soft_bounce=True), Defer)
