"""omsend: what is put for which options and input; ids; and what is refused before any put."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omq.base.errors import Exit
from omq.cli import launch
from tests.unit.cli.fakes import FakeConnection

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: FakeConnection) -> Run:
    """run(*words, stdin=b"", conf=...): omsend on a spool with this configuration."""
    spool, conf = tmp_path / "spool", tmp_path / "conf"
    spool.mkdir()
    conf.mkdir()
    (conf / "queues.conf").write_text("[ORDERS]\n[AUDIT]\n[LOW]\npriority = low\npersistent = no\n")

    def call(*words: str, stdin: bytes = b"", settings: str = "") -> int:
        (conf / "omq.conf").write_text(settings)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        return launch.run("omsend", ["--spool", str(spool), "--conf", str(conf), *words])

    return call


def test_standard_input_is_a_message_and_its_id_is_printed(
    run: Run, manager: FakeConnection, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("ORDERS", stdin=b"\x00any bytes\xff") == 0
    assert capsys.readouterr().out == f"{1:048x}\n"
    (put,) = manager.puts
    assert put == {
        "queues": ("ORDERS",), "body": b"\x00any bytes\xff", "priority": None, "properties": {},
        "persistent": None, "correlation_id": b"", "expiry_s": None, "reply_to": "", "delay_s": 0.0,
        "unique_key": None,
    }  # fmt: skip
    assert manager.connects[0]["spool"] == tmp_path / "spool"


def test_every_option_reaches_the_message(run: Run, manager: FakeConnection) -> None:
    assert run(
        "ORDERS,AUDIT", "--priority", "urgent", "--property", "a=1", "--property", "b.c=x=y",
        "--non-persistent", "--correlation-id", "own words", "--reply-to", "AUDIT",
        "--defer", "1.5", "--expiry", "60", "--unique-key", "once", stdin=b"x",
    ) == 0  # fmt: skip
    (put,) = manager.puts
    assert put == {
        "queues": ("ORDERS", "AUDIT"), "body": b"x", "priority": 7, "persistent": False,
        "properties": {"a": "1", "b.c": "x=y"}, "correlation_id": b"own words",
        "expiry_s": 60.0, "reply_to": "AUDIT", "delay_s": 1.5, "unique_key": "once",
    }  # fmt: skip


def test_one_key_is_for_one_message(run: Run, manager: FakeConnection,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ORDERS", "a", "b", "--unique-key", "once") == 64
    assert not manager.puts and "one key is for one message" in capsys.readouterr().err


def test_a_property_in_json_keeps_its_type(run: Run, manager: FakeConnection) -> None:
    assert run("ORDERS", "--json-property", "n=42", "--json-property", "x=1.5",
               "--json-property", "yes=true", "--json-property", 't="a=b"', "--property", "p=42"
               ) == 0
    said = manager.puts[0]["properties"]
    assert json.loads(said.pop("amqp.types")) == {"n": "long", "x": "double", "yes": "boolean"}
    assert said == {"n": "42", "x": "1.5", "yes": "true", "t": "a=b", "p": "42"}


@pytest.mark.parametrize("word", ["n=forty", "n=[1]", "n=null", "n=NaN", "n=", "n", "n=1e999",
                                  f"n={1 << 70}", "n=" + "[" * 50_000])
def test_what_is_no_value_of_json_is_refused(run: Run, manager: FakeConnection, word: str,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ORDERS", "--json-property", word) == Exit.DATA
    assert not manager.puts and "property 'n'" in capsys.readouterr().err


def test_files_of_a_group_are_numbered_on(run: Run, manager: FakeConnection, tmp_path: Path
                                          ) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(name.encode())
    files = [str(tmp_path / name) for name in ("one", "two")]
    assert run("ORDERS", *files, "--group", "g", "--sequence", "3", "--last") == 0
    assert run("ORDERS", *files, "--group", "0a" * 24) == 0
    assert [(put["group_id"], put["group_sequence"], put["last_in_group"])
            for put in manager.puts] == [
        (b"g", 3, False), (b"g", 4, True), (b"\n" * 24, 0, False), (b"\n" * 24, 0, False)]


def test_what_a_mail_cannot_have_is_refused(run: Run, manager: FakeConnection,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--group", "g"], ["--expiry", "5"], ["--when-done", "1"], ["--claim"],
                  ["--reply-to", "AUDIT"], ["--unique-key", "k"], ["--non-persistent"]):
        assert run("-t", "bob", *words, stdin=b"Subject: x\n\nbody\n") == Exit.USAGE
        assert f"{words[0]} is not for a mail (-t)" in capsys.readouterr().err
    assert not manager.puts


def test_printed_id_of_another_message_is_a_correlation_id(
    run: Run, manager: FakeConnection
) -> None:
    assert run("ORDERS", "--correlation-id", "0a" * 24) == 0
    assert manager.puts[0]["correlation_id"] == b"\n" * 24


def test_each_file_is_a_message(
    run: Run, manager: FakeConnection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(name.encode())
    assert run("ORDERS", str(tmp_path / "one"), "-", str(tmp_path / "two"), stdin=b"in") == 0
    assert [put["body"] for put in manager.puts] == [b"one", b"in", b"two"]
    assert len(capsys.readouterr().out.split()) == 3


def test_what_the_options_do_not_say_is_left_to_the_manager(
    run: Run, manager: FakeConnection
) -> None:
    assert run("LOW") == run("LOW", "--persistent", "--priority", "9") == 0
    assert [(put["priority"], put["persistent"]) for put in manager.puts] == [
        (None, None), (9, True)]


def test_a_wrong_configuration_is_no_business_of_a_client(
    run: Run, manager: FakeConnection, tmp_path: Path
) -> None:
    (tmp_path / "conf" / "queues.conf").write_text("[ORDERS]\nmax_length = 64 bananas\n")
    wrong = "[ipc]\nreconnect_grace_s = 7\n[store]\nbody_bytes_max = no\n[oops]\n"
    assert run("ORDERS", stdin=b"x", settings=wrong) == 0
    assert manager.connects[0]["timeout_s"] == 7.0
    assert run("ORDERS", stdin=b"x", settings="not a section\n") == 0
    assert run("ORDERS", "--timeout", "2.5", stdin=b"x") == 0
    assert [each["timeout_s"] for each in manager.connects] == [7.0, 30.0, 2.5]


def test_ids_of_what_was_put_before_an_error_are_printed(
    run: Run, manager: FakeConnection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").write_bytes(b"1")
    assert run("ORDERS", str(tmp_path / "one"), str(tmp_path / "none")) == Exit.NO_INPUT
    out, error = capsys.readouterr()
    assert out == f"{1:048x}\n"
    assert "none cannot be read: No such file" in error


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], Exit.USAGE),
        (["orders"], Exit.USAGE),
        (["ORDERS,"], Exit.USAGE),
        (["ORDERS", "--priority", "10"], Exit.USAGE),
        (["ORDERS", "--correlation-id", "x" * 25], Exit.USAGE),
        (["ORDERS", "--correlation-id", "x" * 48], Exit.USAGE),
        (["ORDERS", "--property", "novalue"], Exit.DATA),
        (["ORDERS", "--property", ".bad=1"], Exit.DATA),
        (["ORDERS", "--property", "a=\udcff"], Exit.DATA),
        (["ORDERS", "--defer", "-1"], Exit.USAGE),
        (["ORDERS", "--defer", "nan"], Exit.USAGE),
        (["ORDERS", "--sequence", "1"], Exit.USAGE),
        (["ORDERS", "--group", "g", "--sequence", "0"], Exit.USAGE),
        (["ORDERS", "--group", "g", "--last"], Exit.USAGE),
        (["ORDERS", "--group", "g", "--when-done", "a"], Exit.USAGE),
        (["ORDERS", "--group", "x" * 25], Exit.USAGE),
        (["ORDERS", "--no-such-option"], Exit.USAGE),
        (["ORDERS", "/"], Exit.NO_INPUT),
    ],
)
def test_wrong_words_put_nothing(
    run: Run, manager: FakeConnection, words: list[str], code: Exit
) -> None:
    assert run(*words) == code
    assert manager.connects == manager.puts == []


def test_input_over_the_limit_is_not_read_into_memory(run: Run, manager: FakeConnection) -> None:
    settings, manager.longest = "[mail]\nsmtp_message_bytes_max = 1 KiB\n", 1024
    assert run("ORDERS", stdin=b"x" * 1024, settings=settings) == 0
    assert run("ORDERS", stdin=b"x" * 1025, settings=settings) == Exit.DATA
    assert run("-t", "bob", stdin=b"x" * 1025, settings=settings) == Exit.DATA
    assert len(manager.puts) == 1


def test_missing_spool(manager: FakeConnection, tmp_path: Path) -> None:
    assert launch.run("omsend", ["--spool", str(tmp_path / "no"), "ORDERS"]) == Exit.NO_INPUT


MAIL = b"From: me\nTo: bob\nBcc: secret@example.org\nSubject: x\nPriority: urgent\n\nText\n"


def test_mail_goes_to_the_router_with_its_envelope(run: Run, manager: FakeConnection) -> None:
    assert run("-t", "-i", "-f", "me@example.org", "al@example.org", stdin=MAIL,
               settings="[mail]\nhostname = mx.test\n") == 0  # fmt: skip
    put: dict[str, Any] = manager.puts[0]
    assert put["queues"] == ("ROUTER",)
    assert put["priority"] == 7
    assert put["persistent"] is True
    assert put["properties"] == {
        "mail.from": "me@example.org", "mail.to": "al@example.org\nbob\nsecret@example.org",
        "mail.body": "7BIT",
    }  # fmt: skip
    assert b"secret" not in put["body"]
    assert put["body"].startswith(b"Received: by mx.test ")
    assert put["body"].endswith(b"\r\n\r\nText\r\n")


def test_options_of_the_command_line_win_over_the_mail(run: Run, manager: FakeConnection) -> None:
    assert run("-t", "--priority", "low", "--property", "mail.to=eve", stdin=MAIL) == 0
    assert manager.puts[0]["priority"] == 1
    assert "eve" not in manager.puts[0]["properties"]["mail.to"]


def test_mail_without_recipient_is_refused(run: Run, manager: FakeConnection) -> None:
    assert run("-t", stdin=b"Subject: x\n\nTo: text\n") == Exit.USAGE
    assert manager.puts == []


def test_an_id_that_cannot_be_printed_is_said(
    run: Run, manager: FakeConnection, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run("ORDERS", stdin=b"x") == Exit.CANT_CREATE
    assert len(manager.puts) == 1  # so whoever sends it again sends it twice
    said = capsys.readouterr().err
    assert f"message {1:048x} is on its queue" in said and "do not send it again" in said
