"""What omqlog says of each frame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.clock import iso_time
from omq.cli.look import omqlog
from omq.cli.look.omqlog import record, what
from omq.core.history.frames import Command, Happening
from omq.format.frame_rules import RULES, Reason
from omq.format.journal import FrameFlag, FrameType

NS = 1_000_000_000
PLAIN = Happening(
    kind=FrameType.GIVE, lsn=7, time_ns=NS, qpool=956, queue="LOCAL", flags=0, priority=4,
    size=12, attempt=2, reason=0, argument=0, lease=0, pid=1, uid=2, client="")
LAST, IDEL, FAILED = FrameFlag.LAST_PART, FrameFlag.TO_IDEL, FrameFlag.FAILED
SAID = {
    "put on LOCAL, priority 4, 12 bytes": replace(PLAIN, kind=FrameType.PUT),
    "put on A, B, priority 4, 12 bytes, made of 3": replace(
        PLAIN, kind=FrameType.PUT, queue="", targets=("A", "B"), parent=3),
    "put on LOCAL, B, priority 4, 12 bytes": replace(
        PLAIN, kind=FrameType.PUT, targets=("LOCAL", "B")),
    "put on LOCAL, priority 4, 12 bytes, of group account-42": replace(
        PLAIN, kind=FrameType.PUT, group="account-42"),
    "put on LOCAL, priority 4, 12 bytes, of group g, number 3, the last": replace(
        PLAIN, kind=FrameType.PUT, group="g", group_sequence=3, last_in_group=True),
    "given to a reader on LOCAL, attempt 2": PLAIN,
    "done on LOCAL; it is gone": replace(PLAIN, kind=FrameType.DONE, flags=LAST),
    "done on LOCAL; it waits on IDEL": replace(PLAIN, kind=FrameType.DONE, flags=IDEL),
    "moved from LOCAL to A, B (replayed)": replace(
        PLAIN, kind=FrameType.MOVE, targets=("A", "B"), flags=FrameFlag.REPLAY),
    "put besides on A": replace(PLAIN, kind=FrameType.MOVE, queue="", targets=("A",)),
    f"attempt failed, deferred on LOCAL until {iso_time(30 * NS)}: reader died": replace(
        PLAIN, kind=FrameType.DEFER, flags=FAILED, argument=30 * NS, reason=Reason.DIED),
    "put on POISON on LOCAL": replace(PLAIN, kind=FrameType.POISON, targets=("POISON",)),
    "deleted on LOCAL; it is gone": replace(PLAIN, kind=FrameType.DELETE, flags=LAST),
    "held on LOCAL": replace(PLAIN, kind=FrameType.HOLD),
    "released on LOCAL": replace(PLAIN, kind=FrameType.RELEASE),
    "given back untouched on LOCAL": replace(PLAIN, kind=FrameType.RELEASE_GIVEN),
    "operator command, 3 messages": replace(PLAIN, kind=FrameType.OPERATOR, queue="", argument=3),
    "operator command, 1 service": replace(
        PLAIN, kind=FrameType.OPERATOR, queue="", argument=1, command=Command(
            7, NS, 0, 1, "omon router", "", "services")),
    "operator command, 2 of 3 messages": replace(
        PLAIN, kind=FrameType.OPERATOR, queue="", argument=3, command=Command(
            7, NS, 0, 1, "omqdump move to B", "", done=2)),
    "operator command, process 4242 on LOCAL": replace(
        PLAIN, kind=FrameType.OPERATOR, argument=4242),
}  # fmt: skip


@pytest.mark.parametrize("words", SAID)
def test_in_words(words: str) -> None:
    assert what(SAID[words]) == words


@pytest.mark.parametrize("kind", FrameType, ids=lambda kind: kind.name)
def test_every_type_can_be_told(kind: FrameType) -> None:
    said = what(replace(PLAIN, kind=kind, targets=("A",), argument=NS, reason=3, flags=LAST))
    assert said and "{" not in said


def test_a_number_that_is_no_reason_is_not_told_as_one() -> None:
    """In a MOVE it is the old pool record."""
    for kind, rule in RULES.items():
        told = record(replace(PLAIN, kind=kind, reason=int(Reason.DIED)))["reason"]
        assert told == ("reader died" if rule.reasoned else "")
    assert record(replace(PLAIN, kind=FrameType.HOLD, reason=6))["reason"] == (
        "ordered by an operator")


def test_until() -> None:
    timed = {kind for kind in FrameType
             if record(replace(PLAIN, kind=kind, argument=NS))["until"] is not None}
    assert timed == {FrameType.DEFER, FrameType.DELETE}
    assert record(replace(PLAIN, kind=FrameType.DELETE))["until"] is None


def test_the_mail_log_before_this_one_is_read(tmp_path: Path) -> None:
    log = tmp_path / "mail.log"
    assert list(omqlog._logged(log, {"ab"})) == []
    (tmp_path / "mail.log.1").write_text("t h omq/smtpd[1]: ab: one\nt h omq/smtpd[1]: ac: no\n")
    log.write_bytes(b"t h omq/smtpd[1]: ab: two\n\xff\n")
    assert [line[-3:] for line in omqlog._logged(log, {"ab"})] == ["one", "two"]
