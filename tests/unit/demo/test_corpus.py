"""Reading mail: mbox, Maildir, .eml folders, CPython's messages; what is changed or skipped."""

from __future__ import annotations

import mailbox
from pathlib import Path

import pytest

from omq.base.settings import DEFAULTS
from tests.demo import corpus
from tests.demo.corpus import Corpus, CorpusError, RawMail, read_mailbox
from tests.demo.mails import Mail

LINE_BYTES_MAX = DEFAULTS.smtp_line_bytes_max
ONE = b"From: a@example.org\nTo: b@example.org\nSubject: one\n\nfirst\n"
TWO = b"From: c@example.org\nTo: d@example.org\nCc: e@example.org\n\n.second\nFrom me\n"


def adopt(*messages: bytes) -> tuple[list[Mail], list[tuple[str, str]]]:
    source = Corpus(seed=1)
    mails = list(source.mails(RawMail(f"m{at}", data) for at, data in enumerate(messages)))
    return mails, source.skipped


def test_mbox(tmp_path: Path) -> None:
    path = tmp_path / "box"
    box = mailbox.mbox(path)
    for data in (ONE, TWO):
        box.add(data)
    box.close()
    found = list(read_mailbox(path))
    assert [raw.origin for raw in found] == ["box#0", "box#1"]
    assert found[0].data == ONE
    assert found[1].data == TWO.replace(b"\nFrom ", b"\n>From ")  # as the mbox holds it


def test_maildir_with_a_subfolder(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / ".Sent"):
        for part in ("tmp", "new", "cur"):
            (folder / part).mkdir(parents=True)
    (tmp_path / "new" / "1.a").write_bytes(ONE)
    (tmp_path / "cur" / "2.b:2,S").write_bytes(TWO)
    (tmp_path / "tmp" / "3.c").write_bytes(b"half a mess")
    (tmp_path / ".Sent" / "cur" / "4.d:2,").write_bytes(ONE)
    assert [raw.data for raw in read_mailbox(tmp_path)] == [ONE, TWO, ONE]


def test_eml_folder_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a.eml").write_bytes(ONE)
    (tmp_path / "deep" / "er" / "b.eml").write_bytes(TWO)
    (tmp_path / "notes.txt").write_bytes(b"no mail")
    found = [(raw.origin, raw.data) for raw in read_mailbox(tmp_path)]
    assert found == [("a.eml", ONE), ("deep/er/b.eml", TWO)]


def test_single_message_file(tmp_path: Path) -> None:
    path = tmp_path / "one.eml"
    path.write_bytes(ONE)
    assert list(read_mailbox(path)) == [RawMail("one.eml", ONE)]


@pytest.mark.parametrize("name", ["missing", "."])
def test_no_mail_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorpusError):
        list(read_mailbox(tmp_path / name))


def test_adopted_message_keeps_its_bytes_below_the_added_lines() -> None:
    (one, two), skipped = adopt(ONE, TWO)
    assert skipped == []
    for mail, original in ((one, ONE), (two, TWO)):
        wanted = original.replace(b"\n", b"\r\n")
        assert mail.data.endswith(wanted)
        added = mail.data.removesuffix(wanted)
        assert added.startswith(b"X-Demo-Id: " + mail.demo_id.encode() + b"\r\n")
        assert added.endswith(b"\r\n") and b"\r\n\r\n" not in added


def test_recipients_are_named_where_a_field_is_free() -> None:
    (one, two), _ = adopt(ONE, TWO)
    added = one.data.removesuffix(ONE.replace(b"\n", b"\r\n"))
    visible = [name for name in one.recipients if name not in one.hidden]
    assert all(name.encode() in added for name in visible)
    assert not any(name.encode() in added for name in one.hidden)
    assert (b"\r\nCc: " in added) == bool(visible)
    assert two.hidden == two.recipients  # it has both To and Cc: its recipients are Bcc ones


def test_line_ends_and_from_line() -> None:
    (mail,), _ = adopt(b"From x@y Mon Jan  1 00:00:00 2001\nSubject: s\r\n\rbody")
    assert mail.data.endswith(b"\r\nSubject: s\r\n\r\nbody\r\n")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b" \n", "empty"),
        (b"A: b\n\n\0\n", "NUL"),
        (b"A: b\n\n" + b"x" * (LINE_BYTES_MAX + 1) + b"\n", str(LINE_BYTES_MAX)),
    ],
)
def test_what_smtp_cannot_carry_is_skipped_with_its_reason(data: bytes, word: str) -> None:
    mails, skipped = adopt(data, ONE)
    assert [mail.data.endswith(b"first\r\n") for mail in mails] == [True]
    assert [origin for origin, _ in skipped] == ["m0"]
    assert word in skipped[0][1]


def test_messages_of_cpython() -> None:
    folder = corpus.cpython_folder()
    if folder is None:
        pytest.skip("install CPython's test package (Debian: libpython3.11-testsuite)")
    source = Corpus(seed=1)
    mails = list(source.mails(corpus.read_cpython(folder)))
    assert len(mails) > 40
    assert len({mail.demo_id for mail in mails}) == len(mails)


def test_missing_test_package_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("importlib.util.find_spec", find)
    assert corpus.cpython_folder() is None
