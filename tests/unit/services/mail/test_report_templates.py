"""Templates of reports: languages, fields, and files that are wrong."""

from __future__ import annotations

import email
import email.policy
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import ConfigError
from omq.services.mail.delivery_report import FailedMessage, ReportStyle, build_report
from omq.services.mail.dsn import DELAYED, DELIVERED, FAILED
from omq.services.mail.error_manager import ErrorManagerService
from omq.services.mail.mail_message import Failure, error_properties
from omq.services.mail.report_templates import BUILT_IN, Templates, load_templates
from omq.services.mail.routes import language_of
from omq.services.mail.routes_file import load_routes
from omq.services.readers.service import Move

GERMAN = """\
Subject: Unzustellbar für {count} Empfänger bei {host}

Nachricht {id} vom {arrival} von {sender} {{so}}:

{recipients}
Fragen an {postmaster}.
"""


def report(templates: Templates, language: str = "", action: str = FAILED,
           sender: str = "s@far.test", recipient: str = "a@b.test") -> Any:
    style = ReportStyle("mx.test", "postmaster@mx.test", full=False, original_bytes_max=1000,
                        scan_bytes=1000, templates=templates)
    failed = FailedMessage(sender, b"Subject: x\r\n\r\n", "id1", 0,
                           [Failure(recipient, "5.1.1", "no such user", action=action)],
                           language=language)
    made = build_report(failed, style, 0)
    assert b"\r\n" in made and not re.search(rb"(?<!\r)\n", made)
    return email.message_from_bytes(made, policy=email.policy.default)


def text_of(made: Any) -> str:
    text: str = next(made.iter_parts()).get_content().replace("\r\n", "\n")
    return text


def test_words_of_a_language(tmp_path: Path) -> None:
    (tmp_path / "failed.de").write_text(GERMAN)
    templates = load_templates(str(tmp_path))
    assert not templates.wrong
    made = report(templates, "de-at")
    assert made["subject"] == "Unzustellbar für 1 Empfänger bei mx.test"
    first, second, third = made.iter_parts()
    assert first["content-language"] == "de"
    assert text_of(made) == (
        "Nachricht id1 vom Thu, 01 Jan 1970 00:00:00 +0000 von s@far.test {so}:\n\n"
        "<a@b.test>: 5.1.1\n    no such user\nFragen an postmaster@mx.test.\n")
    plain = list(report(Templates()).iter_parts())
    assert second.as_bytes() == plain[1].as_bytes(), "the machine-readable part is the same"
    assert third.as_bytes() == plain[2].as_bytes()
    assert {each: made[each] for each in made if each not in ("Subject", "Content-Type")} == {
        each: report(Templates())[each] for each in made if each not in ("Subject", "Content-Type")}


@pytest.mark.parametrize(("language", "action", "told"), [
    ("de", FAILED, "de"), ("de-at", FAILED, "at"), ("de-ch-1996", FAILED, "de"),
    ("fr", FAILED, "site"), ("", FAILED, "site"), ("de", DELAYED, BUILT_IN[DELAYED].subject),
    ("de", DELIVERED, BUILT_IN[DELIVERED].subject),
])
def test_the_nearest_language_then_the_sites_then_ours(language: str, action: str, told: str,
                                                       tmp_path: Path) -> None:
    for name, subject in (("failed.de", "de"), ("failed.de-at", "at"), ("failed", "site")):
        (tmp_path / name).write_text(f"Subject: {subject}\n\n{{recipients}}\n")
    made = report(load_templates(str(tmp_path)), language, action)
    assert made["subject"] == told and "a@b.test" in text_of(made)


@pytest.mark.parametrize(("text", "line", "told"), [
    ("", 1, "begins with"), ("Hello\n\n{recipients}\n", 1, "begins with"),
    ("Subject: \n\n{recipients}\n", 1, "begins with"),
    ("Subject: x\ny\n{recipients}\n", 2, "empty"),
    ("Subject: x", 2, "empty"), ("Subject: x\n\n", 3, "no text"),
    ("Subject: x\n\nHello\n{recipient}\n", 4, "not a field"), ("Subject: x\n\n{\n", 3, "bracket"),
    ("Subject: x\n\n}{recipients}\n", 3, "bracket"),
    ("Subject: x\n\n{recipients.__class__}\n", 3, "not a field"),
    ("Subject: {sender}\n\n{recipients}\n", 1, "not a field"),
    ("Subject: x\n\nnobody is named\n", 4, "missing"),
    ("Subject: x\n\n{{recipients}}\n", 4, "missing"),
    ("Subject: x\n\n\x1b[2J{recipients}\n", 3, "control"),
    (f"Subject: {'x' * 201}\n\n{{recipients}}\n", 1, "200"),
    (f"Subject: x\n\n{{recipients}}{'x' * 65536}\n", 0, "65536"),
])
def test_a_wrong_template_is_told_with_its_line_and_ours_is_used(text: str, line: int, told: str,
                                                                 tmp_path: Path) -> None:
    (tmp_path / "failed").write_text(text)
    (tmp_path / "delayed").write_text("Subject: ok\n\n{recipients}\n")
    templates = load_templates(str(tmp_path))
    (wrong,) = templates.wrong
    assert (wrong.path, wrong.line) == (tmp_path / "failed", line) and told in wrong.reason
    assert report(templates)["subject"] == BUILT_IN[FAILED].subject
    assert report(templates, action=DELAYED)["subject"] == "ok", "the others are used"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "failed").write_bytes(b"Subject: x\n\n\xff{recipients}\n")
    (tmp_path / "delayed").mkdir()
    (tmp_path / "delivered").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "relayed")
    (tmp_path / "Failed.de").write_text(GERMAN)
    (tmp_path / ".failed.swp").write_text("an editor's")
    wrong = {each.path.name: each for each in load_templates(str(tmp_path)).wrong}
    assert set(wrong) == {"failed", "delayed", "delivered", "relayed", "Failed.de"}
    assert wrong["failed"].line == 3 and "ACTION.LANGUAGE" in wrong["Failed.de"].reason
    (absent,) = load_templates(str(tmp_path / "absent")).wrong
    assert "cannot be read" in str(absent)
    for number in range(501):
        (tmp_path / f"failed.x{number:03}").touch()
    assert "500" in load_templates(str(tmp_path)).wrong[0].reason


def test_values_are_no_fields_and_begin_no_line(tmp_path: Path) -> None:
    (tmp_path / "failed").write_text("Subject: {count}\n\n{sender}\n{recipients}\n")
    made = report(load_templates(str(tmp_path)), sender="{host}\r\nBcc: x@y",
                  recipient="{id}\r\nX: y")
    assert text_of(made).startswith("{host}") and "<{id}" in text_of(made)
    assert "bcc" not in made and len(text_of(made).splitlines()) == 3


def test_a_long_subject_in_another_script_is_a_field(tmp_path: Path) -> None:
    subject = "Сообщение не доставлено " * 8
    (tmp_path / "failed").write_text(f"Subject: {subject}\n\n{{recipients}}\n")
    made = report(load_templates(str(tmp_path)))
    assert made["subject"] == subject.strip()


def test_languages_of_senders(conf_dir: Path) -> None:
    (conf_dir / "routes.conf").write_text(
        "[languages]\nbob@a.test = FR\na.test = de-AT\n.a.test = it\n* = en\n")
    languages = load_routes(conf_dir).languages
    assert [language_of(languages, each) for each in (
        "BOB@a.test", "x@a.test", "x@b.a.test", "x@c.test", "")] == [
            "fr", "de-at", "it", "en", "en"]
    assert language_of({}, "x@a.test") == ""
    (conf_dir / "routes.conf").write_text("[languages]\na.test = ../de\n")
    with pytest.raises(ConfigError, match="language tag"):
        load_routes(conf_dir)


def test_error_manager_tells_a_sender_in_his_language(
        service: Callable[..., Any], message: Callable[..., Any], logged: Callable[[], list[int]],
        tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "failed.de").write_text(GERMAN)
    (folder / "delayed.de").write_text("wrong")
    manager = service(ErrorManagerService, "errmgr", "[languages]\nfar.test = de\n",
                      report_templates=str(folder))
    assert logged().count(1522) == 1
    failed = message(b"Subject: x\r\n\r\n", {"mail.from": "s@far.test"} | error_properties(
        [Failure("a@b.test", "5.1.1", "no such user")]))

    def subject() -> str:
        answer = manager.handle(failed)
        assert isinstance(answer, Move)
        made: str = email.message_from_bytes(answer.new[0].body,
                                             policy=email.policy.default)["subject"]
        return made

    assert subject().startswith("Unzustellbar für 1")
    (folder / "failed.de").write_text("Subject: half")
    manager.reload()
    assert subject() == BUILT_IN[FAILED].subject and logged().count(1522) == 3
