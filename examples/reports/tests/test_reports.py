"""Run in examples/reports: pytest"""

import json

import pytest
import reports

import omq


def test_a_night(omq_instance):
    omq_instance.run("schedule.server")
    with omq.connect(name="waits") as connection, connection.reader("NIGHTLY") as reader:
        while not (nights := reader.next(timeout_s=0.2)):
            omq_instance.pass_time(86400)
        reports.begin(json.loads(nights[0].body))
        nights[0].done()
    pages = [each.json["customer"] for each in omq_instance.drain("PAGES", reports.make)]
    assert pages[:4] == ["alice", "bob", "alice", "bob"], "bob does not wait for 40 pages"
    assert len(pages) == 42
    omq_instance.drain("REPORTS", reports.send)
    assert {each.json["to"]: each.json["pages"] for each in omq_instance.drain("SENT")} == (
        reports.PAGES)


def test_one_page_of_a_customer_at_a_time(omq_instance):
    reports.begin({"of": "today"})
    with omq.connect(name="fast") as connection, connection.reader("PAGES", batch=10) as reader:
        customers = [json.loads(each.body)["customer"] for each in reader.next(10, timeout_s=30)]
        assert sorted(customers) == ["alice", "bob"]


def test_what_is_not_a_page_is_refused_by_its_schema(omq_instance):
    with omq.connect(name="wrong") as connection, pytest.raises(
            omq.BodyRefused, match=r"\$\.page"):
        reports.message(connection, "alice", 0)


def test_who_is_unknown_goes_aside(omq_instance):
    with omq.connect(name="late") as connection:
        connection.put("PAGES", b'{"customer": "carol", "page": 1}')
    omq_instance.drain("PAGES", reports.make)
    assert [each.json["customer"] for each in omq_instance.drain("UNKNOWN")] == ["carol"]
