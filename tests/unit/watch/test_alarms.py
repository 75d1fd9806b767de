"""Alarms: thresholds, hold time, hysteresis, notices, and what `omq health` says."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from omq.base import clock, events
from omq.base.clock import NS_PER_S
from omq.base.errors import ConfigError, Exit
from omq.base.event_log import EventLog
from omq.base.paths import SpoolPaths
from omq.base.settings import DEFAULTS
from omq.cli.look.alarm_lines import alarm_lines
from omq.cli.watch import alarm_file, health, reasons
from omq.cli.watch.alarm_conf import ALARM_KEYS, Alarm, load_alarms
from omq.cli.watch.alarm_events import AlarmEvents
from omq.cli.watch.alarm_notices import Notices
from omq.cli.watch.alarms import step
from omq.cli.watch.conditions import Condition, Key, Owed
from omq.cli.watch.measures import OF_INSTANCE, OF_QUEUE
from omq.services.daemon.options import Location
from omq.services.ship import shown
from omq.services.ship.shown import ShipState
from omq.services.standby import lease_file
from omq.services.standby.lag import Protected, StandbyState
from omq.services.standby.lease_file import LeaseState
from omq.storage import spool
from tests.tidy.tree import ROOT
from tests.unit.watch.made import NOW_NS, SHIPS, facts, queue

LEASE = LeaseState(lease_file.HELD, "a", 0, "a", 0, "", 1, 1, ["b"], "", 0)
DEEP = Alarm("deep", "messages", "*", 100, 50, hold_s=10)
Steps = list[tuple[float, int]]  # seconds, messages


def run(alarm: Alarm, steps: Steps) -> list[str]:
    """What the queue A is after each step: -, pending, raised, clearing."""
    before: dict[Key, Condition] = {}
    words = []
    for at_s, messages in steps:
        before = step([alarm], facts(queue("A", ready=messages),
                                     now_ns=NOW_NS + int(at_s * NS_PER_S)), before)
        each = before.get(("deep", "A"))
        words.append("-" if each is None else "pending" if not each.raised
                     else "clearing" if each.clearing_ns else "raised")
    return words


def test_it_holds_before_it_begins_and_before_it_is_over() -> None:
    assert run(DEEP, [(0, 99), (1, 100), (10, 200), (11, 100), (12, 60), (13, 49), (22, 49),
                      (23, 49)]) == ["-", "pending", "pending", "raised", "raised", "clearing",
                                     "clearing", "-"]


def test_what_falls_back_within_the_hold_time_was_nothing() -> None:
    assert run(DEEP, [(0, 100), (9, 99), (10, 100), (19, 100), (20, 100)]) == [
        "pending", "-", "pending", "pending", "raised"]


def test_between_the_thresholds_nothing_flutters() -> None:
    steps: Steps = [(0, 100), (1, 99), (2, 50), (3, 49), (4, 50), (5, 99)]
    assert run(replace(DEEP, hold_s=0), steps) == [
        "raised", "raised", "raised", "-", "-", "-"]


def test_a_clock_that_goes_back_begins_the_hold_time_anew() -> None:
    assert run(DEEP, [(100, 100), (50, 100), (59, 100), (60, 100)]) == [
        "pending", "pending", "pending", "raised"]


def test_without_an_index_what_was_stays_and_a_queue_that_is_gone_is_over() -> None:
    alarm = replace(DEEP, hold_s=0)
    found = step([alarm], facts(queue("A", ready=100)), {})
    assert step([alarm], facts(state="absent"), found) == found
    assert step([alarm], facts(queue("B")), found) == {}
    assert step([], facts(queue("A", ready=100)), found) == {}


def test_every_measure_grows_with_trouble() -> None:
    bad = facts(queue("A", 1, ready=9, held=3, age_s=60, max_depth=12),
                queue("POISON", 2, ready=1), state="hung", free=0, configured=False, pending=3,
                messages=900, space_low=1, last_lsn=5, units_in_doubt=2, quarantined=1)
    away = StandbyState("b", following=False, acked_lsn=4, primary_lsn=5, lag_frames=1, lag_s=7.0,
                        away_s=6.0)
    bad = replace(bad, disk_bytes=100, space=replace(bad.space, inodes=50, inodes_free=1),
                  standbys=(away, replace(away, member="c", lag_s=None),
                            replace(away, member="d", following=True, lag_s=1.0,
                                    conf="queues.conf differs: A")),
                  protection=Protected("alone", 1, ()), lease=LEASE,
                  shipping=ShipState(SHIPS, 60, NOW_NS))
    found = {name: measure(bad) for name, measure in OF_INSTANCE.items()}
    assert found == {
        "manager_down": 1, "configuration_wrong": 1, "services_down": None, "restarts": 0,
        "poison": 1, "index_percent": 90, "room_refused": 1, "disk_used_percent": 100,
        "inodes_used_percent": 98,
        "checkpoint_lag": 5, "in_doubt": 2, "archive_pending": 3, "quarantined": 1,
        "standbys_away": 2, "standbys_differ": 1, "standby_lag_s": 7.0, "unprotected": 1,
        "lease_trouble": 1, "ship_lag_s": 90.0, "ship_trouble": 1}
    assert OF_INSTANCE["unprotected"](replace(bad, protection=None)) is None, "none is waited for"
    for state, wanted in (("synced", 0), ("leased", 0), ("waiting", 1), ("fenced", 1)):
        told = replace(bad, protection=Protected(state, 1, ()))
        assert OF_INSTANCE["unprotected"](told) == wanted, state
    assert OF_INSTANCE["lease_trouble"](replace(bad, lease=None)) is None, "people decide"
    assert OF_INSTANCE["standby_lag_s"](replace(bad, standbys=())) is None, "there is none"
    assert OF_INSTANCE["ship_trouble"](replace(bad, shipping=None)) is None, "it is not to ship"
    none = replace(bad, space=replace(bad.space, inodes=0))
    assert OF_INSTANCE["inodes_used_percent"](none) is None, "a file system that has no table"
    of = {name: measure(bad.queues[0], bad.time_ns) for name, measure in OF_QUEUE.items()}
    assert of == {"messages": 12, "ready": 9, "deferred": 0, "put_off": 0, "held": 3,
                  "oldest_s": 60, "full_percent": 100, "unread": 9, "stuck": 0}


def test_what_keeps_a_member_from_a_failover() -> None:
    """As `omq standby status`, `omq health` and the alarm say it."""
    now = clock.monotonic_ns()
    well = replace(LEASE, told_ns=now, boot_id=clock.boot_id().hex(), until_ns=now + 60 * NS_PER_S)
    assert well.trouble == "" and well.left_s() > 0
    assert replace(well, told_ns=now - 60 * NS_PER_S).trouble == "omq standby keep does not run"
    assert replace(well, boot_id="0").trouble == "omq standby keep does not run"
    assert replace(well, boot_id="0").left_s() == 0, "of another boot, or another host"
    assert replace(well, until_ns=now, error="e").trouble == "the lease is over: e"
    for state in (lease_file.SILENT, lease_file.FORGOTTEN, lease_file.NOT_IN_SYNC):
        found = replace(well, state=state, error="why")
        assert found.trouble == "why" and found.left_s() == 0
    assert replace(well, state=lease_file.WAITING).trouble == ""


def test_what_is_wrong_with_what_ships(tmp_path: Path) -> None:
    """As `omq ship status`, `omq health`, the alarm and the console say it."""
    def at(seconds: float = 0, **changes: object) -> ShipState:
        return ShipState(SHIPS | changes, 60, NOW_NS + int(seconds * NS_PER_S))

    assert at(waits_s=59.0).trouble == ""
    assert at(waits_s=None).trouble.startswith("what is not there is not known")
    assert at(base_time_ns=0, waits_s=0.0).trouble.startswith("no copy of the pool is there yet")
    assert at().trouble == ("something has waited for 90 s to be shipped, 1.0 MiB of the journal "
                            "are not there; the last object there is journal/000000/000000000003")
    assert at(error="s3: no").trouble.startswith("s3: no; it has been away for 30 s, 1.0 MiB of")
    assert at(error="s3: no", away_s=None, waits_bytes=None, last_object="").trouble == "s3: no"
    silent = at(61, waits_s=0.0)
    assert "has said nothing since" in silent.trouble and silent.waits_s == 61.0
    assert at(3, waits_s=0.0).waits_s == 0.0 and at(30, waits_s=5.0).waits_s == 35.0
    killed = at(30, waits_s=0.0, waits_bytes=0)  # who knows what came since
    assert killed.waits_s == 30.0 and killed.waits_bytes is None and killed.trouble == ""
    assert "has said nothing" in at(-90).trouble, "a clock that was set back"
    assert at(-2, waits_s=0.0).trouble == ""
    paths = SpoolPaths(tmp_path)
    (tmp_path / "run").mkdir()
    for bad in (b"", b"[]", b"{", b"7", b'{"time_ns": 1}', b"[" * 9000, b"\xff",
                json.dumps(SHIPS | {"time_ns": 10**30}).encode(),
                json.dumps(SHIPS | {"waits_s": float("nan")}).encode(),
                json.dumps(SHIPS | {"waits_bytes": "many"}).encode()):
        paths.ship.write_bytes(bad)
        found = shown.load(paths, DEFAULTS)
        assert found.trouble.startswith("nothing ships") and found.waits_s is None, bad
    older = {key: value for key, value in SHIPS.items()
             if key not in ("waits_bytes", "last_object", "away_s")}
    paths.ship.write_text(json.dumps(older | {"time_ns": clock.wall_ns(), "waits_s": 0.0}))
    assert shown.load(paths, DEFAULTS).trouble == ""
    assert shown.watched(paths, tmp_path) is None, "no ship_to"
    (tmp_path / "omq.conf").write_text("[ship]\nship_to = file:///tmp\n")
    assert shown.watched(paths, tmp_path) is not None


def test_the_shipped_file_explains_every_key_and_measure() -> None:
    text = (ROOT / "conf/alarms.conf").read_text()
    for key in ALARM_KEYS:
        assert f"\n# {key} = " in text, key
    for name in (*OF_INSTANCE, *OF_QUEUE):
        assert name in text.partition("[")[0], name
    alarms = load_alarms(ROOT / "conf")
    assert step(alarms, facts(queue("A", ready=5, max_depth=10)), {}) == {}
    assert {each.measure for each in alarms} >= {"manager_down", "poison", "room_refused"}


@pytest.mark.parametrize(("text", "said"), [
    ("[a]\nraise = 1\n", "measure"), ("[a]\nmeasure = poison\n", "raise"),
    ("[A B]\nmeasure = poison\nraise = 1\n", "name"), ("[a]\nmeasure = x\nraise = 1\n", "'x'"),
    ("[a]\nmeasure = messages\nraise = 1\n", "queue"),
    ("[a]\nmeasure = poison\nqueue = A\nraise = 1\n", "queue"),
    ("[a]\nmeasure = messages\nqueue = a b\nraise = 1\n", "queue"),
    ("[a]\nmeasure = poison\nraise = 5\nclear = 6\n", "clear"),
    ("[a]\nmeasure = poison\nraise = 0\n", "raise"),
    ("[a]\nmeasure = poison\nraise = 1\nrun = page me\n", "run"),
    ("[a]\nmeasure = poison\nraise = 1\nmail = -oQ/tmp@x\n", "mail"),
    ("[a]\nmeasure = poison\nraise = 1\nunit = --force.service\n", "unit"),
    ("[a]\nmeasure = poison\nraise = 1\nsize = 1\n", "size"),
    ("".join(f"[a{n}]\nmeasure = poison\nraise = 1\n" for n in range(101)), "too many"),
])
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "alarms.conf").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_alarms(tmp_path)


class Told:
    """Who was told, instead of programs."""

    def __init__(self, log: Path, alarm: Alarm) -> None:
        self.commands: list[tuple[list[str], str]] = []
        self.fails = False
        self.log_file = log
        self.log = EventLog("test", log, stderr=False)
        self.notices = Notices(DEFAULTS, self.log, {}, self.run)
        self.alarm = alarm
        self.conditions: dict[Key, Condition] = {}

    def run(self, command: Sequence[str], text: str, timeout_s: float) -> None:
        assert timeout_s == DEFAULTS.alarms_run_timeout_s
        self.commands.append((list(command), text))
        if self.fails:
            raise subprocess.TimeoutExpired(command, timeout_s)

    def turn(self, at_s: int, **messages: int) -> list[str]:
        """What was told in a turn."""
        now = facts(*(queue(name, ready=count) for name, count in messages.items()),
                    now_ns=NOW_NS + at_s * NS_PER_S)
        found = step([self.alarm], now, self.conditions)
        self.notices.changed(self.conditions, found)
        self.conditions, before = found, len(self.commands)
        self.notices.tell([self.alarm], now.time_ns)
        return [" ".join(words[1:]) for words, _ in self.commands[before:]]

    def events(self) -> list[int]:
        return [json.loads(line)["event"] for line in self.log_file.read_text().splitlines()]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path / "events.log",
                Alarm("deep", "messages", "*", 100, 50, run="/bin/page", every_s=300))
    yield made
    made.log.close()


def test_a_begin_and_an_end_are_told_once(told: Told) -> None:
    assert told.turn(0, A=100) == ["raise deep warning: deep of A: messages: 100 -> omqwhy A"]
    assert told.turn(10, A=120) == []
    assert told.turn(400, A=0) == ["clear deep warning: deep of A: messages: 120"]
    assert told.turn(800, A=0) == []
    assert told.events() == [events.ALARM_RAISED.number, events.ALARM_CLEARED.number]


def test_what_flutters_is_told_at_most_once_in_its_time(told: Told) -> None:
    assert len(told.turn(0, A=100)) == 1
    for at_s in range(2, 300, 2):
        assert told.turn(at_s - 1, A=0) == []
        assert told.turn(at_s, A=100) == []
    assert told.turn(301, A=0, B=100) == [
        "raise deep warning: deep of B: messages: 100 -> omqwhy B",
        "clear deep warning: deep of A: messages: 100"]


def test_a_thousand_queues_are_one_notice(told: Told) -> None:
    (said,) = told.turn(0, **{f"Q{number}": 100 for number in range(1000)})
    assert said.endswith("and 995 more") and len(said) < 300


def test_what_is_owed_is_told_by_the_next_watcher(told: Told, tmp_path: Path) -> None:
    """A watcher that ends within every_s keeps nobody uninformed."""
    paths = spool.create_spool(tmp_path / "spool").paths
    told.turn(0, A=100, C=100)
    assert told.turn(10, A=100, B=100, C=0) == [], "of this alarm it was told a moment ago"
    alarm_file.write(paths, told.conditions, told.notices.told_ns, told.notices.owed)
    kept = alarm_file.read(paths)
    told.conditions = kept.conditions
    told.notices = Notices(DEFAULTS, told.log, kept.told_ns, told.run, kept.owed)
    assert told.turn(20, A=100, B=100) == []
    assert told.turn(301, A=100, B=100) == [
        "raise deep warning: deep of B: messages: 100 -> omqwhy B",
        "clear deep warning: deep of C: messages: 100"]
    assert told.turn(700, A=100, B=100) == [] and told.notices.owed == Owed()


def test_a_stop_does_not_wait_for_all_programs(told: Told) -> None:
    told.notices = Notices(DEFAULTS, told.log, {}, told.run, stopping=lambda: True)
    assert told.turn(0, A=100) == []
    assert [each.key for each in told.notices.owed.begun] == [("deep", "A")]


def test_mail_and_unit(told: Told) -> None:
    told.alarm = replace(told.alarm, run="", mail="ops@example.org", unit="page.service")
    told.turn(0, A=100)
    (mail, text), (unit, _) = told.commands
    assert mail == [DEFAULTS.alarms_sendmail, "--", "ops@example.org"]
    assert text.startswith("To: ops@example.org\nSubject: omq raise: deep\n")
    assert text.endswith("\n\nwarning: deep of A: messages: 100 -> omqwhy A\n")
    assert unit == ["systemctl", "--no-block", "start", "page.service"]
    told.turn(400, A=0)
    assert [words[0] for words, _ in told.commands[2:]] == [DEFAULTS.alarms_sendmail]


def test_a_program_that_hangs_is_an_event_and_the_next_is_told(told: Told) -> None:
    told.fails = True
    told.alarm = replace(told.alarm, mail="ops@example.org")
    assert len(told.turn(0, A=100)) == 2
    assert told.events().count(events.ALARM_NOT_TOLD.number) == 2


@pytest.fixture
def location(tmp_path: Path) -> Location:
    paths = spool.create_spool(tmp_path / "spool").paths
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "alarms.conf").write_text(
        "[manager]\nmeasure = manager_down\nraise = 1\nhold_s = 3600\nseverity = critical\n")
    return Location(None, paths, conf)


def health_of(location: Location, *words: str) -> int:
    return health.main(["--spool", str(location.paths.root), "--conf", str(location.conf_dir),
                        *words])


def test_health_is_an_exit_code_lines_and_json(
        location: Location, capsys: pytest.CaptureFixture[str]) -> None:
    assert health_of(location) == Exit.NO
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("critical: manager: the queue manager does not run: nothing moves")
    assert rest[0].startswith("    -> omrc starts it")
    assert health_of(location, "--json") == Exit.NO
    record = json.loads(capsys.readouterr().out.splitlines()[0])
    assert [cause["code"] for cause in record["causes"]] == ["no_manager"]
    assert (record["alarm"], record["queue"], record["severity"]) == ("manager", None, "critical")
    assert health_of(location, "--quiet") == Exit.NO
    assert capsys.readouterr().out == ""
    (location.conf_dir / "alarms.conf").write_text(
        "[poison]\nmeasure = poison\nraise = 1\n")
    assert health_of(location) == Exit.OK, "no alarm: what is seen besides is a note"
    assert capsys.readouterr().out.startswith("note: the queue manager does not run")


def test_while_a_watcher_runs_its_hold_times_count(
        location: Location, capsys: pytest.CaptureFixture[str]) -> None:
    raised = Condition("manager", "", "critical", 1.0, clock.wall_ns(), raised=True)
    alarm_file.write(location.paths, {raised.key: replace(raised, raised=False)},
                     {"manager": 7}, Owed())
    assert health_of(location) == Exit.OK
    assert alarm_lines(location) == []
    alarm_file.write(location.paths, {raised.key: raised}, {"manager": 7}, Owed())
    kept = alarm_file.read(location.paths)
    assert (kept.conditions, kept.told_ns) == ({raised.key: raised}, {"manager": 7})
    assert health_of(location) == Exit.NO
    assert alarm_lines(location) == ["ALARM critical: manager: 1"], "an older watcher's"
    capsys.readouterr()


@pytest.mark.parametrize("change", [
    {"pid": 1 << 22}, {"started": 1}, {"boot": "00"}, {"conditions": 7}, {"told_ns": []},
    {"conditions": [{"alarm": "x"}]}, {"owed": 5}, {"owed": {"begun": [7], "over": []}}])
def test_what_a_dead_watcher_or_somebody_else_left_is_not_shown(
        location: Location, change: dict[str, object]) -> None:
    raised = Condition("manager", "", "critical", 1.0, 5, raised=True)
    alarm_file.write(location.paths, {raised.key: raised}, {}, Owed())
    file = location.paths.run / alarm_file.FILE_NAME
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert alarm_lines(location) == []
    file.write_text("[" * 100_000)
    assert alarm_file.read(location.paths) == alarm_file.Kept()


def test_hostile_names_reach_no_terminal(location: Location) -> None:
    raised = Condition("\x1b[31m", "\u202e<b>", "critical", 1.0, 5, raised=True)
    alarm_file.write(location.paths, {raised.key: raised}, {}, Owed())
    (line,) = alarm_lines(location)
    assert line.isascii() and line.isprintable()


def test_a_turn_raises_and_the_next_watcher_goes_on(location: Location, tmp_path: Path) -> None:
    alarms = (replace(load_alarms(location.conf_dir)[0], hold_s=0, run="/bin/page"),)
    told = Told(tmp_path / "events.log", alarms[0])
    wanted = replace(DEFAULTS, event_messages="all")
    messages = AlarmEvents(location.paths, wanted, told.log)
    now = health.turn(location, alarms, {}, told.notices, messages)
    assert [words[:3] for words, _ in told.commands] == [["/bin/page", "raise", "manager"]]
    kept = alarm_file.read(location.paths)
    assert kept.conditions == now
    again = Told(tmp_path / "events.log", alarms[0])
    later = health.turn(location, alarms, kept.conditions, again.notices, messages)
    assert later.keys() == now.keys()
    assert again.commands == []
    told.log.close()
    again.log.close()


@pytest.mark.parametrize("measure", [*OF_INSTANCE, *OF_QUEUE])
def test_each_measure_has_a_sentence(measure: str) -> None:
    """The invariant of omq.cli.watch.reasons, also where there is no cause to be told."""
    about = facts()
    text, hints = reasons.why(measure, "A" if measure in OF_QUEUE else "", 7.0, about)
    assert text and all(hints) and hints


def test_the_document_has_an_alarm_that_works_and_every_measure_of_a_queue(tmp_path: Path) -> None:
    text = (ROOT / "lib/omq/docs/WATCHING.md").read_text("utf-8")
    (example,) = re.findall(r"^To be notified when [^\n]+\n\n((?: {4}[^\n]+\n)+)", text, re.M)
    (tmp_path / "alarms.conf").write_text(textwrap.dedent(example))
    (alarm,) = load_alarms(tmp_path)
    assert (alarm.measure, alarm.queue, alarm.begin, alarm.mail) == (
        "oldest_s", "ORDERS", 600, "operator@example.org")
    (others,) = re.findall(r"^Other measures of a queue are (.+?); `conf", text, re.M | re.S)
    assert {alarm.measure, *re.findall(r"`([a-z_]+)`", others)} == set(OF_QUEUE)
