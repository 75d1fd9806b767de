"""The check: a clean delivery passes; every planted fault is found, and only that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.demo.arrivals import count_arrivals
from tests.demo.generator import generate
from tests.demo.mails import Mail, as_delivered, is_local, is_unknown
from tests.demo.transaction import Outcome
from tests.demo.verify import Findings, expected_count
from tests.unit.demo.world import World, has_mailbox

SEED = 5
COUNT = 120


@pytest.fixture
def world(tmp_path: Path) -> World:
    mails = list(generate(SEED, COUNT))
    assert any(is_unknown(name) for mail in mails for name in mail.recipients if mail.sender)
    return World(tmp_path, mails)


def kinds(findings: Findings) -> dict[str, int]:
    return {name: len(lines) for name, lines in findings.faults().items() if lines}


def local_mail(world: World) -> Mail:
    """A message with a body and a local recipient."""
    return next(
        mail
        for mail in world.mails
        if mail.origin == "plain" and any(map(has_mailbox, mail.recipients))
    )


def test_clean_delivery_is_good(world: World) -> None:
    findings = world.findings()
    assert findings.good and kinds(findings) == {}
    expected = expected_count(world.sent, world.outcomes)
    assert findings.copies + findings.reports == expected
    assert count_arrivals(world.root / "mail", world.root / "sink") == expected
    assert findings.reports > 0


def test_missing_local_copy(world: World) -> None:
    mail = local_mail(world)
    next(world.files(mail, local=True)).unlink()
    findings = world.findings()
    assert kinds(findings) == {"missing": 1}
    assert mail.demo_id in findings.missing[0]


def test_missing_transaction_misses_each_of_its_recipients(world: World) -> None:
    path = max((world.root / "sink").glob("*.msg"), key=lambda each: each.name[-6:-4])
    recipients = int(path.name[-6:-4])
    path.unlink()
    assert kinds(world.findings()) == {"missing": recipients}
    assert recipients > 1


def test_double_copy(world: World) -> None:
    path = next(world.files(local_mail(world), local=True))
    path.with_name("again.x").write_bytes(path.read_bytes())
    findings = world.findings()
    assert kinds(findings) == {"double": 1}
    assert "2 times" in findings.double[0]


def test_double_of_an_in_doubt_message_is_listed_but_not_held_against_omq(world: World) -> None:
    mail = local_mail(world)
    path = next(world.files(mail, local=True))
    path.with_name("again.x").write_bytes(path.read_bytes())
    world.outcomes[mail.demo_id].in_doubt = 1
    findings = world.findings()
    assert findings.good and len(findings.doubtful) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-3] + b"?" + data[-2:],
        lambda data: data[:-2],
        lambda data: data + b"\r\n",
        lambda data: data.replace(b"\r\n\r\n", b"\r\nX-New: 1\r\n\r\n", 1),
        lambda data: data.replace(b"X-Demo-Id:", b"X-Filter: seen\r\nX-Demo-Id:", 1),
        lambda data: data.replace(b"\r\n", b"\n"),
    ],
    ids=["byte", "cut", "longer", "field", "field on top", "line ends"],
)
def test_altered_copy(world: World, change: Callable[[bytes], bytes]) -> None:
    path = next(world.files(local_mail(world), local=True))
    path.write_bytes(change(path.read_bytes()))
    assert kinds(world.findings()) == {"altered": 1}


def test_bcc_field_that_was_not_removed(world: World) -> None:
    mail = next(each for each in world.mails if as_delivered(each.data) != each.data)
    local = any(has_mailbox(name) for name in mail.recipients)
    path = next(world.files(mail, local=local))
    top = path.read_bytes().partition(b"X-Demo-Id:")[0]
    path.write_bytes(top + mail.data)
    findings = world.findings()
    assert set(kinds(findings)) == {"altered"}
    assert "Bcc" in findings.altered[0]


def test_bcc_recipient_named_on_top_of_another_copy(world: World) -> None:
    mail, visible = next(
        (mail, name)
        for mail in world.mails
        for name in mail.recipients
        if mail.hidden and name not in mail.hidden and has_mailbox(name)
    )
    assert mail.sender not in mail.hidden
    folder = world.root / "mail" / visible.partition("@")[0]
    path = next(each for each in world.files(mail, local=True) if folder in each.parents)
    leak = b"Received: for <" + mail.hidden[0].encode() + b">\r\nX-Demo-Id"
    path.write_bytes(path.read_bytes().replace(b"X-Demo-Id", leak, 1))
    findings = world.findings()
    assert kinds(findings) == {"disclosed": 1}
    assert mail.hidden[0] in findings.disclosed[0] and visible in findings.disclosed[0]


def test_bcc_recipient_in_a_shared_transaction(world: World) -> None:
    mail = next(
        each
        for each in world.mails
        if len([name for name in each.recipients if not is_local(name)]) > 1
        and any(not is_local(name) for name in each.hidden)
    )
    remote = tuple(name for name in mail.recipients if not is_local(name))
    for path in list(world.files(mail, local=False)):
        path.unlink()
    world.to_sink(remote, as_delivered(mail.data))
    findings = world.findings()
    assert set(kinds(findings)) == {"disclosed"}
    assert "shares a transaction" in findings.disclosed[0]


def test_report_that_is_missing_double_or_at_the_wrong_place(world: World) -> None:
    mail, failed = next(
        (mail, name)
        for mail in world.mails
        for name in mail.recipients
        if is_unknown(name) and mail.sender
    )
    again = world.report(mail, failed, mail.sender)
    assert kinds(world.findings()) == {"double": 1}
    again.unlink()
    world.reports[0].unlink()
    assert kinds(world.findings()) == {"missing": 1}
    world.report(mail, failed, "walter@omq.test")
    assert kinds(world.findings()) == {"missing": 1, "unexpected": 1}


def test_unknown_user_refused_at_once_needs_no_report(world: World) -> None:
    mail = next(
        each for each in world.mails if each.sender and any(map(is_unknown, each.recipients))
    )
    failed = next(filter(is_unknown, mail.recipients))
    world.outcomes[mail.demo_id].refused[failed] = "550 5.1.1 unknown"
    findings = world.findings()
    assert kinds(findings) == {"unexpected": 1}  # the report that came all the same


def test_message_that_was_never_accepted_is_missing_with_its_reason(world: World) -> None:
    mail = local_mail(world)
    world.outcomes[mail.demo_id] = Outcome()
    for local in (True, False):
        for path in list(world.files(mail, local=local)):
            path.unlink()
    findings = world.findings()
    assert len(findings.missing) == len(mail.recipients)
    assert all("never accepted" in line for line in findings.missing)


def test_foreign_message_and_wrong_mailbox(world: World) -> None:
    world.to_mailbox("anna@omq.test", b"Subject: hello\r\n\r\nspam\r\n")
    mail = next(each for each in world.mails if "bert@omq.test" not in each.recipients)
    world.to_mailbox("bert@omq.test", as_delivered(mail.data))
    assert kinds(world.findings()) == {"unexpected": 2}
