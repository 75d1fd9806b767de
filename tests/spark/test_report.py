"""The report's words and pictures on small tables made by hand: plain functions, no JVM."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from omqtools.omqspark import charts, interactive, report
from omqtools.omqspark.audit import KINDS
from omqtools.omqspark.manifest import FileRecord, Manifest
from omqtools.omqspark.page import page, picture
from omqtools.omqspark.reader_bars import READERS_SHOWN, busiest
from omqtools.omqspark.report import by_hour_of_day
from omqtools.omqspark.summary import FOUND, seconds, sentences
from omqtools.omqspark.topmost import GREY, NAME_SHOWN_MAX, OTHER, TOP, Queues

START = pd.Timestamp("2026-01-01T00:00", tz="UTC")
NAMES = {3: "ROUTER", 4: "LOCAL"}
CLEAN: dict[str, Any] = {"clean": True, "counts": {"lost": 0}, "findings": []}


def tables(**changes: Any) -> dict[str, pd.DataFrame]:
    """Two hours of two queues in which nothing is unusual; `changes`: table -> column -> value, of
    the rows of ROUTER."""
    minute = [{"queue": queue, "minute": START + pd.Timedelta(minutes=n), "arrivals": 5,
               "departures": 5, "depth": 0, "oldest_s": 0.0} for queue in NAMES for n in range(120)]
    hour = [{"queue": queue, "hour": START + pd.Timedelta(hours=n), "arrivals": 300,
             "services": 300, "failed": 0, "ready_wait_p99_s": 1.0}
            for queue in NAMES for n in range(3)]
    made = {
        "queue_minute": pd.DataFrame(minute), "queue_hour": pd.DataFrame(hour),
        "poison": pd.DataFrame([{"queue": 3, "failed": 1, "poisoned": 0, "reader_pid": 77,
                                 "example": 42}]),
        "readers": pd.DataFrame([{"queue": queue, "reader": 1, "reader_pid": 77, "span_s": 7000.0,
                                  "busy_share": 0.4} for queue in NAMES]),
        "oldest": pd.DataFrame([{"queue": queue, "qpool": 40 + queue, "waiting": 2, "age_s": 60.0}
                                for queue in NAMES])}
    for table, columns in changes.items():
        for column, value in columns.items():
            rows = made[table]["queue"] == 3
            if column == "ready_wait_p99_s":
                rows &= made[table]["hour"] == START
            made[table].loc[rows, column] = value
    return made


END = START + pd.Timedelta(hours=2)
"""Of the data; the report is made ten minutes later."""


def told(verdict: dict[str, Any] | None = CLEAN, behind_s: float = 600.0, **changes: Any
         ) -> list[str]:
    found = tables(**changes)
    return [f"{each.text} | {each.command}" for each in sentences(
        found, Queues.of(NAMES, found["queue_hour"]), verdict, end=END,
        now=END + pd.Timedelta(seconds=behind_s))]


def test_nothing_unusual_is_said() -> None:
    assert told() == [
        "Nothing was unusual up to 01 Jan 2026 02:00 (UTC), by the rules of this summary. | "]


@pytest.mark.parametrize(("behind_s", "words"), [
    (3601.0, "The data end at 01 Jan 2026 02:00 (UTC), 60 min before this report was made: it does "
     "not cover what happened since. | omq-archive, then omq-spark refresh"),
    (-7200.0, "The newest event is of 01 Jan 2026 02:00 (UTC), 2 h after this report was made: a "
     "clock was wrong, so ages and waits may be wrong, too. | omqlog")])
def test_when_the_data_end_is_said_where_that_is_not_now(behind_s: float, words: str) -> None:
    assert told(behind_s=behind_s) == [words]
    assert told(behind_s=3600.0) == told(behind_s=-3600.0) == told()


def test_nothing_is_said_of_what_was_not_judged() -> None:
    left = {"not_judged": {"lost": "no --pool was given"}}
    assert told(CLEAN | left) == [
        "Nothing was unusual up to 01 Jan 2026 02:00 (UTC), by the rules of this summary and as "
        "far as it was judged. | ",
        "Not judged: lost messages (no --pool was given). | audit.json says what was judged"]
    verdict = CLEAN | left | {"messages": 8000, "ended": 7999, "open": 1}
    said = report._verdict(verdict)
    assert "messages are accounted for" not in said
    assert "nothing was found in 8,000 messages; whether all are accounted for was not "\
        "judged" in said
    assert "All 8,000 messages are accounted for" in report._verdict(verdict | {"not_judged": {}})


@pytest.mark.parametrize(("changes", "words"), [
    ({"oldest": {"age_s": 7300.0}},
     "On ROUTER the oldest of 2 messages has been there for 2.03 h. | omqlog --message 43"),
    ({"poison": {"poisoned": 3}},
     "3 messages of ROUTER failed for good, most of them with the reader of pid 77. | "
     "omqlog --message 42"),
    ({"queue_hour": {"failed": 100}},
     "25% of the attempts on ROUTER failed (300). | "
     "omq-spark biography --out OUT --where 'failed > 0'"),
    ({"readers": {"busy_share": 0.97}},
     "1 of 1 readers of ROUTER had no time left (97% busy). | "
     "omq-spark whatif --out OUT --readers ROUTER=2"),
    ({"queue_minute": {"depth": 150, "departures": 1}},
     "ROUTER grows: 300 came in the last hour, 60 left; 150 wait. | "
     "omq-spark advise --out OUT --wait-s 60"),
    ({"queue_hour": {"ready_wait_p99_s": 900.0}},
     "At 01 Jan 00:00 one of 100 messages on ROUTER waited 15 min or longer, usually 1 s. | "
     "omq-spark advise --out OUT --wait-s 60 --day 2026-01-01"),
])
def test_each_rule_says_its_sentence_and_no_other(changes: dict[str, Any], words: str) -> None:
    assert told(**changes) == [words]


def test_the_audit_comes_first() -> None:
    found = [{"kind": "lost", "qpool": 9}]
    assert told({"counts": {"lost": 1, "gap": 0}, "findings": found}) == [
        "The audit found 1 lost message. | omqlog --message 9"]
    assert told({"counts": {"gap": 2000}, "findings": []}) == [
        "The audit found 2,000 gaps in the numbers of the journal. | audit.json lists them"]
    assert told(None)[0].startswith("No audit was made")
    assert tuple(FOUND) == KINDS
    assert told({"counts": {"new_kind": 2}, "findings": []}) == [
        "The audit found 2 new kind. | audit.json lists them"], "of a newer omq"


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_not_judged_is_said_whatever_was_found(clean: bool) -> None:  # noqa: FBT001
    """Also beside findings: nobody is called lost where nobody looked."""
    verdict = {"clean": clean, "counts": {"lost": 0, "crc": int(not clean)}, "messages": 7,
               "ended": 5, "open": 2, "data_to": "2026-01-01T00:00:00+00:00",
               "not_judged": {"lost": "no --pool was given", "before": "the tables begin with 3",
                              "files": "not in the tables yet: 9"}}
    said = report._verdict(verdict)
    assert ("nothing was found in 7" in said, "1 damaged place in the archive</b>" in said) == (
        clean, not clean)
    for text in ("Not judged: lost messages (no --pool was given).",
                 "Not judged: what came before (the tables begin with 3).",
                 "Not judged: the newest files (not in the tables yet: 9)."):
        assert text in said


def test_seconds() -> None:
    assert [seconds(n) for n in (0.5, 90, 600, 9000, 400_000)] == [
        "0.5 s", "90 s", "10 min", "2.5 h", "4.63 days"]


def test_three_hundred_queues_are_eight_and_others() -> None:
    hour = pd.DataFrame([{"queue": n, "arrivals": n} for n in range(1, 301)])
    queues = Queues.of({}, hour)
    assert queues.top == list(range(300, 300 - TOP, -1))
    assert (queues.name(OTHER), queues.colour(OTHER)) == ("292 others", GREY)
    assert len({queues.colour(n) for n in queues.top}) == TOP
    rows = pd.DataFrame([{"queue": n, "minute": START + pd.Timedelta(minutes=m), "arrivals": 1,
                          "departures": 0, "depth": m + 1, "oldest_s": float(n)}
                         for n in range(1, 301) for m in (range(3) if n % 2 else [0])])
    few = queues.minutes(rows)
    assert set(few["queue"]) == {*queues.top, OTHER}
    other = few[few["queue"] == OTHER].sort_values("minute")
    rest = rows[~rows["queue"].isin(queues.top)]
    assert other["arrivals"].sum() == len(rest)
    assert other["depth"].tolist() == [292, 146 + 2 * 146, 146 + 3 * 146], (
        "who says nothing has what it had")
    for draw in (charts.throughput, charts.depth):
        figure = draw(few, queues)
        (legend,) = filter(None, (axis.get_legend() for axis in figure.axes))
        assert len(legend.get_texts()) == TOP + 1


def test_flows_name_the_busiest_and_others() -> None:
    queues = Queues.of(NAMES, pd.DataFrame([{"queue": n, "arrivals": n} for n in range(3, 30)]))
    routes = pd.DataFrame([{"from_queue": 0, "to_queue": n, "messages": 5} for n in range(3, 30)]
                          + [{"from_queue": n, "to_queue": 0, "messages": 5}
                             for n in range(3, 30)])
    texts = {text.get_text() for text in charts.flows(routes, queues).axes[0].texts}
    assert {"put", "finished", "19 others"} <= texts


def many(hours: int) -> tuple[pd.DataFrame, Queues]:
    """Rows of queue_hour of 300 queues, every third hour without any."""
    rows = [{"queue": n, "hour": START + pd.Timedelta(hours=h), "arrivals": n,
             "ready_wait_p50_s": 0.5, "ready_wait_p99_s": 70.0}
            for n in range(1, 301, 30 if hours > 100 else 1) for h in range(hours) if h % 3]
    hour = pd.DataFrame(rows)
    return hour, Queues.of({}, hour)


def ns(**since: float) -> int:
    """The instant so long after START."""
    return int((START + pd.Timedelta(seconds=0, **since)).value)


@pytest.mark.parametrize(("hours", "rows"), [(2, 1), (24 * 30, 30), (24 * 730, 105)])
def test_the_heat_map_is_bounded_and_shows_what_is_missing(hours: int, rows: int) -> None:
    hour, queues = many(hours)
    hour = hour[(hour["hour"] < START + pd.Timedelta(days=3))
                | (hour["hour"] >= START + pd.Timedelta(days=5))]
    spans = [(ns(), ns(days=3)), (ns(days=5), ns(hours=hours - 1, minutes=59))]
    table = by_hour_of_day(hour, spans if hours > 120 else [(ns(), ns(hours=2))])
    assert table.shape == (rows, 24)
    assert table[0].isna().sum() >= (2 if hours == 24 * 30 else 0), "two days are not archived"
    drawn = interactive.heat(table, queues)
    assert drawn["height"] <= interactive.HEIGHT_MAX_PX
    assert charts.heat(table, queues).get_size_inches()[1] <= 9


def test_an_hour_that_is_archived_in_part_does_not_look_quiet() -> None:
    """The first and the last hour, and those beside a missing file; an archived hour in which
    nothing came is 0."""
    hour = pd.DataFrame([{"queue": 3, "hour": START + pd.Timedelta(hours=h), "arrivals": 60}
                         for h in (0, 1, 3, 4, 7)])
    table = by_hour_of_day(hour, [(ns(minutes=50), ns(hours=4, minutes=10)),
                                         (ns(hours=5, minutes=5), ns(hours=7, minutes=1))])
    row = [None if pd.isna(each) else int(each) for each in table.iloc[0]]
    assert row == [None, 60, 0, 60, None, None, 0] + [None] * 17
    assert table.index.tolist() == ["2026-01-01"]


def test_weeks_are_the_mean_of_their_archived_days() -> None:
    """The first week has one day in the archive; its sum would look quiet beside whole weeks."""
    first = 6 * 24  # START is a Thursday; the archive begins on a Wednesday, ends after 70 days
    hour = pd.DataFrame([{"queue": 3, "hour": START + pd.Timedelta(hours=h), "arrivals": 24}
                         for h in range(first, first + 70 * 24)])
    table = by_hour_of_day(hour, [(ns(hours=first), ns(hours=first + 70 * 24))])
    assert set(table.to_numpy().ravel()) == {24.0}


def test_the_time_that_is_archived_ends_where_a_file_is_missing() -> None:
    def file(number: int, low: int, high: int, frames: int = 1) -> FileRecord:
        return FileRecord(number, 0, 1, 1, 1, 0, frames, low, low, high, 0, 0)

    known = Manifest()
    known.files = {each.number: each for each in (
        file(3, 10, 20), file(4, 20, 30), file(5, 0, 0, frames=0), file(6, 35, 40),
        file(8, 60, 70))}
    assert report._spans(known) == [(10, 40), (60, 70)]
    assert report._spans(Manifest()) == [(0, 0)]


def test_gaps_are_gaps() -> None:
    hour, queues = many(12)
    (half, *_) = interactive.waits(hour, queues)["data"]
    points = json.loads(interactive.script(half["y"]))
    assert points[:4] == [0.5, 0.5, None, 0.5]
    assert len(interactive.waits(hour, queues)["data"]) == 2 * (TOP + 1), "and all others"


def test_a_page_needs_nothing_else_and_no_name_ends_its_script() -> None:
    hour, _ = many(2)
    queues = Queues.of({300: "</script><b>"}, hour)
    text = page([picture("waits", "Waits")], {"waits": interactive.waits(hour, queues)})
    assert text.count("<script>") == text.count("</script>") == 2
    assert "\\u003c/script>\\u003cb>" in text
    own = text.replace(interactive.library(), "")
    assert "http" not in own and "<link" not in own and "Plotly.react" in own


def test_a_rule_says_five_sentences_at_most() -> None:
    found = tables()
    found["poison"] = pd.DataFrame([{"queue": n, "failed": 1, "poisoned": 1, "reader_pid": 7,
                                     "example": n} for n in range(300)])
    said = sentences(found, Queues.of({}, found["queue_hour"]), CLEAN, end=END, now=END)
    assert len(said) == 6 and said[-1].text == "The same holds for 295 more queues."


def test_names_that_look_alike_have_labels_of_their_own() -> None:
    """Thirty queues whose names differ in the middle alone; one that is short keeps its name."""
    names = {n: f"orders.of.a.department.{n:03d}.with.a.long.name" for n in range(1, 31)}
    names[31] = "SHORT"
    queues = Queues.of(names, pd.DataFrame([{"queue": n, "arrivals": n} for n in names]))
    labels = [queues.short(n) for n in names]
    assert len(set(labels)) == len(names)
    assert all(len(label) <= NAME_SHOWN_MAX for label in labels) and labels[-1] == "SHORT"
    rows = pd.DataFrame([{"queue": 31, "reader": 7, "reader_pid": 9, "epoch": epoch,
                          "busy_share": 0.5, "messages": 50, "failed": 0, "deaths": 0}
                         for epoch in range(1, 5)])
    (bars,) = interactive.readers(rows, queues)["data"]
    assert len(set(bars["y"])) == 4, "each has a place of its own, whatever it is called"
    axis = charts.readers(rows, queues).axes[0]
    assert len({text.get_text() for text in axis.get_yticklabels()}) == 4


def test_a_reader_of_one_message_is_not_the_busiest() -> None:
    few = [{"queue": 3, "reader": n, "reader_pid": n, "busy_share": 1.0, "messages": 1,
            "failed": 0, "deaths": 0} for n in range(100)]
    rows = pd.DataFrame([*few, {"queue": 4, "reader": 500, "reader_pid": 500, "busy_share": 0.7,
                                "messages": 9000, "failed": 2, "deaths": 1}])
    shown = busiest(rows)
    assert (len(shown), shown["reader"].iloc[0]) == (READERS_SHOWN, 500)
    (bars,) = interactive.readers(rows, Queues(NAMES, [3, 4]))["data"]
    assert json.loads(interactive.script(bars["x"]))[:2] == [70.0, 0.0]
    assert bars["hovertext"][:2] == ["9,000 messages, 2 failed, died 1 times",
                                     "1 message: too few to say how busy it was, 0 failed"]
    (title,) = [axis.get_title(loc="left") for axis in charts.readers(
        rows, Queues(NAMES, [3, 4])).axes]
    assert title.endswith("(the busiest 30 of 101)")


def test_the_last_minute_is_no_outage() -> None:
    """The data end ten seconds into it; so the lines end before it. Depth and age know its end."""
    rows = tables()["queue_minute"]
    rows.loc[rows["minute"] == rows["minute"].max(), ["arrivals", "departures"]] = 0
    queues = Queues.of(NAMES, tables()["queue_hour"])
    for trace in interactive.throughput(rows, queues)["data"]:
        assert min(json.loads(interactive.script(trace["y"]))) == 5
    for axis in charts.throughput(rows, queues).axes:
        assert {float(value) for line in axis.get_lines() for value in np.asarray(
            line.get_ydata())} == {5.0}
    alone = rows[rows["minute"] == START]
    assert interactive.throughput(alone, queues)["data"], "a minute that is alone is shown"
    (depth, *_) = interactive.depth(rows, queues)["data"]
    assert len(depth["x"]) == 120


def test_an_hour_that_nobody_has_archived_as_a_whole_is_no_picture() -> None:
    hour = pd.DataFrame([{"queue": 3, "hour": START, "arrivals": 60}])
    assert report._whole(by_hour_of_day(hour, [(ns(minutes=5), ns(minutes=50))])).empty
    assert not report._whole(by_hour_of_day(hour, [(ns(), ns(hours=1))])).empty


def test_the_waits_of_all_other_queues_are_one_line() -> None:
    hour, queues = many(4)
    hour.loc[hour["queue"] == 1, "ready_wait_p99_s"] = 900.0
    hour.loc[hour["queue"] == 2, "ready_wait_p50_s"] = 9.0
    other = queues.hours(hour)
    other = other[other["queue"] == OTHER]
    assert set(other["ready_wait_p99_s"]) == {900.0} and set(other["ready_wait_p50_s"]) == {0.5}
    names = {trace["name"] for trace in interactive.waits(hour, queues)["data"]}
    assert "292 others" in names and len(names) == TOP + 1
