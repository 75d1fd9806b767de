"""Who wins a lease, by what etcd has: each rule of services.standby.lease against an etcd of a few
lines, which compares and writes as the real one does."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from omq.base.errors import LeaseTaken, NotInSync, TermUnknown
from omq.services.standby.etcd import CallFailed
from omq.services.standby.lease import Lease, Seen
from omq.storage.instance_file import Instance, Role

S = 1_000_000_000
UUID = bytes(range(16))
PRIMARY = Instance(UUID)
B = Instance(UUID, 0, Role.STANDBY, "b")


class Fake:
    """An etcd. `grants`: seconds; `lost`: the answers that never come; `time`: ns."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, int, int, int]] = {}  # value, created, changed, lease
        self.leases: dict[int, int] = {}
        self.revision, self.grants, self.time = 10, 10, 100 * S
        self.lost = False

    def call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        found = getattr(self, path.rsplit("/", 1)[1])(body)
        if self.lost:
            raise CallFailed("no answer in time")
        said: dict[str, Any] = json.loads(json.dumps(found))
        return said

    def grant(self, body: Mapping[str, Any]) -> dict[str, Any]:
        number = len(self.leases) + 1
        self.leases[number] = self.grants
        return {"ID": str(number), "TTL": str(self.grants)}

    def keepalive(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"result": {"TTL": str(self.leases.get(int(body["ID"]), 0))}}

    def revoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.end(int(body["ID"]))
        return {}

    def end(self, lease: int) -> None:
        del self.leases[lease]
        self.keys = {key: each for key, each in self.keys.items() if each[3] != lease}

    def txn(self, body: Mapping[str, Any]) -> dict[str, Any]:
        for each in body.get("compare", ()):
            _, created, changed, _ = self.keys.get(each["key"], ("", 0, 0, 0))
            if int(each.get("create_revision", created)) != created or int(
                    each.get("mod_revision", changed)) != changed:
                return {"header": {"revision": str(self.revision)}}
        self.revision += 1
        answers = []
        for each in body["success"]:
            if "request_range" in each:
                key = each["request_range"]["key"]
                kvs = [{"value": value, "create_revision": str(created),
                        "mod_revision": str(changed)}
                       for value, created, changed, _ in [self.keys[key]]] if (
                           key in self.keys) else []
                answers.append({"response_range": {"kvs": kvs}})
            else:
                put = each["request_put"]
                created = self.keys.get(put["key"], ("", self.revision, 0, 0))[1]
                self.keys[put["key"]] = (put["value"], created, self.revision, int(put["lease"]))
                answers.append({})
        return {"header": {"revision": str(self.revision)}, "succeeded": True,
                "responses": answers}

    def value(self, name: str) -> Any:
        found = self.keys.get(b64encode(f"omq/{UUID.hex()}/{name}".encode()).decode())
        return None if found is None else json.loads(b64decode(found[0]))

    def write(self, name: str, text: str) -> None:
        key = b64encode(f"omq/{UUID.hex()}/{name}".encode()).decode()
        self.revision += 1
        self.keys[key] = (b64encode(text.encode()).decode(), self.revision, self.revision, 0)


@pytest.fixture
def etcd() -> Fake:
    return Fake()


def lease(etcd: Fake, ttl_s: int = 10) -> Lease:
    return Lease(etcd, "omq", PRIMARY, "tls://east", ttl_s, lambda: etcd.time)


def begun(etcd: Fake, *in_sync: str) -> Lease:
    """The primary of term 0 has served, and has gone; these were in sync."""
    made = lease(etcd)
    made.register(PRIMARY, made.look())
    held = made.resume(PRIMARY, made.look())
    assert held is not None
    made.note_in_sync(held, made.look(), frozenset(in_sync))
    made.release(held)
    return made


def test_an_etcd_that_knows_nothing_makes_nobody_primary(etcd: Fake) -> None:
    for member, take in ((PRIMARY, lease(etcd).resume), (B, lease(etcd).promote)):
        with pytest.raises(TermUnknown, match="etcd has no term of this instance"):
            take(member, lease(etcd).look())
    assert not etcd.keys


def test_an_earlier_term_in_etcd_makes_nobody_primary(etcd: Fake) -> None:
    made = begun(etcd, "b")
    for member, take in ((Instance(UUID, 3, Role.PRIMARY, "a"), made.resume),
                         (Instance(UUID, 3, Role.STANDBY, "b"), made.promote)):
        with pytest.raises(TermUnknown, match=r"etcd has term 0, and this is the [a-z]+ of term 3"):
            take(member, made.look())


def test_a_promotion_takes_the_term_and_the_key_at_once(etcd: Fake) -> None:
    made = begun(etcd, "b")
    held = made.promote(B, made.look())
    assert held is not None and held.term == 1
    assert etcd.value("term") == {"term": 1, "member": "b", "began": False}
    assert etcd.value("primary") == {"member": "b", "term": 1, "address": "tls://east"}
    assert etcd.value("in_sync") == {"members": ["b"]}, "until it has begun"
    made.begin(held, Instance(UUID, 1, Role.PRIMARY, "b"), made.look())
    assert etcd.value("term")["began"] is True
    assert etcd.value("in_sync") == {"members": []}


def test_of_two_that_decide_from_one_state_one_wins(etcd: Fake) -> None:
    made = begun(etcd, "b", "c")
    seen = made.look()
    assert made.promote(B, seen) is not None
    assert made.promote(Instance(UUID, 0, Role.STANDBY, "c"), seen) is None
    assert etcd.value("term")["member"] == "b"
    assert len(etcd.leases) == 1, "the lease of the one that was late is given back"


def test_one_term_is_won_once(etcd: Fake) -> None:
    """Another has won it and died, between the look of this one and its transaction."""
    made = begun(etcd, "b", "c")
    seen = made.look()
    held = made.promote(B, seen)
    assert held is not None
    etcd.end(held.lease)
    assert made.promote(Instance(UUID, 0, Role.STANDBY, "c"), seen) is None
    assert etcd.value("term") == {"term": 1, "member": "b", "began": False}


def test_the_key_is_nobodys_while_it_is_there(etcd: Fake) -> None:
    made = begun(etcd, "b")
    held = made.resume(PRIMARY, made.look())
    assert held is not None
    assert made.promote(B, made.look()) is None
    etcd.end(held.lease)
    assert made.promote(B, made.look()) is not None


def test_who_left_the_set_meanwhile_is_not_promoted(etcd: Fake) -> None:
    """The primary goes on alone between the look and the promotion, and its lease ends then."""
    made = begun(etcd, "b")
    held = made.resume(PRIMARY, made.look())
    assert held is not None
    etcd.end(held.lease)
    seen = made.look()
    etcd.write("in_sync", '{"members": []}')
    assert made.promote(B, seen) is None


@pytest.mark.parametrize("in_sync", [(), ("c",)])
def test_who_is_not_in_sync_is_promoted_by_people_alone(etcd: Fake, in_sync: tuple[str, ...]
                                                        ) -> None:
    made = begun(etcd, *in_sync)
    with pytest.raises(NotInSync, match="member b may lack"):
        made.promote(B, made.look())
    assert made.promote(B, made.look(), behind=True) is not None


def test_a_term_under_which_nobody_served_is_gone_past(etcd: Fake) -> None:
    """b won it and died before it served; c is in sync, and so is b, which begins anew."""
    made = begun(etcd, "b", "c")
    held = made.promote(B, made.look())
    assert held is not None
    etcd.end(held.lease)
    held = made.promote(Instance(UUID, 0, Role.STANDBY, "c"), made.look())
    assert held is not None and held.term == 2


def test_who_follows_an_earlier_term_is_not_promoted(etcd: Fake) -> None:
    made = begun(etcd, "b", "c")
    held = made.promote(B, made.look())
    assert held is not None
    made.begin(held, Instance(UUID, 1, Role.PRIMARY, "b"), made.look())
    made.note_in_sync(held, made.look(), frozenset("c"))
    etcd.end(held.lease)
    with pytest.raises(NotInSync, match="it follows term 0, and b has served under term 1"):
        made.promote(Instance(UUID, 0, Role.STANDBY, "c"), made.look())
    assert made.promote(Instance(UUID, 1, Role.STANDBY, "c"), made.look()) is not None


def test_people_register_a_later_term_and_no_earlier_one(etcd: Fake) -> None:
    made = lease(etcd)
    made.register(Instance(UUID, 2, Role.PRIMARY, "b"), made.look())
    made.register(Instance(UUID, 2, Role.PRIMARY, "b"), made.look())
    with pytest.raises(LeaseTaken, match="b is the primary of term 2"):
        made.register(PRIMARY, made.look())
    with pytest.raises(LeaseTaken):
        made.register(Instance(UUID, 2, Role.PRIMARY, "c"), made.look())
    made.register(Instance(UUID, 3, Role.PRIMARY, "c"), made.look())
    held = made.resume(Instance(UUID, 3, Role.PRIMARY, "c"), made.look())
    assert held is not None
    with pytest.raises(LeaseTaken, match="c is the primary of term 3"):
        made.register(Instance(UUID, 4, Role.PRIMARY, "d"), made.look())


def test_its_end_is_counted_from_before_it_was_asked_for(etcd: Fake) -> None:
    made = begun(etcd, "b")
    real = etcd.grant

    def slow(body: Mapping[str, Any]) -> dict[str, Any]:
        etcd.time += 3 * S
        return real(body)

    etcd.grant = slow  # type: ignore[method-assign]
    held = made.resume(PRIMARY, made.look())
    assert held is not None and held.until == 100 * S + 9 * S
    etcd.time += 5 * S
    assert made.renew(held) is not None and held.until == 108 * S + 9 * S


def test_what_is_granted_counts_and_not_what_was_asked_for(etcd: Fake) -> None:
    etcd.grants = 20
    made = begun(etcd, "b")
    held = made.resume(PRIMARY, made.look())
    assert held is not None and held.until == 100 * S + 18 * S
    etcd.leases[held.lease] = 10**9  # an answer that cannot be
    assert made.renew(held) is not None and held.until <= etcd.time + 20 * S


def test_a_lease_without_its_key_is_none(etcd: Fake) -> None:
    made = begun(etcd, "b")
    held = made.resume(PRIMARY, made.look())
    assert held is not None
    until = held.until
    etcd.time += S
    key = next(key for key in etcd.keys if etcd.keys[key][3])
    del etcd.keys[key]
    assert made.renew(held) is None and held.until == until
    assert made.promote(B, made.look()) is not None, "another has it, while that lease lives"
    assert made.renew(held) is None
    etcd.end(held.lease)
    assert made.renew(held) is None


def test_a_call_without_an_answer_may_have_been_carried_out(etcd: Fake) -> None:
    """It is looked at; done again from the same state it changes nothing."""
    made = begun(etcd, "b")
    held = made.resume(PRIMARY, made.look())
    assert held is not None
    seen = made.look()
    etcd.lost = True
    with pytest.raises(CallFailed):
        made.note_in_sync(held, seen, frozenset())
    etcd.lost = False
    made.note_in_sync(held, made.look(), frozenset("bc"))
    with pytest.raises(CallFailed, match="changed meanwhile"):
        made.note_in_sync(held, seen, frozenset())  # the first one, late
    assert etcd.value("in_sync") == {"members": ["b", "c"]}


def test_who_has_lost_the_key_writes_no_set(etcd: Fake) -> None:
    made = begun(etcd, "b")
    held = made.resume(PRIMARY, made.look())
    assert held is not None
    etcd.end(held.lease)
    with pytest.raises(CallFailed):
        made.note_in_sync(held, made.look(), frozenset())
    assert etcd.value("in_sync") == {"members": ["b"]}


@pytest.mark.parametrize(("name", "text"), [
    ("term", "x"), ("term", "[]"), ("term", "{}"), ("term", '{"term": -1, "member": "b"}'),
    ("term", '{"term": true, "member": "b", "began": true}'),
    ("term", '{"term": 99999, "member": "b", "began": true}'),
    ("term", '{"term": 1, "member": "-", "began": true}'),
    ("in_sync", '{"members": "b"}'), ("in_sync", '{"members": [1]}'),
    ("in_sync", json.dumps({"members": ["b"] * 17})),
    ("primary", '{"member": "b", "term": 0, "address": "a\\nb"}'),
    ("primary", json.dumps({"member": "b", "term": 0, "address": "x" * 501})),
])
def test_what_somebody_else_wrote_there_is_no_answer(etcd: Fake, name: str, text: str) -> None:
    made = begun(etcd, "b")
    etcd.write(name, text)
    with pytest.raises(CallFailed, match="cannot be read"):
        made.look()


@pytest.mark.parametrize("answer", [{}, {"responses": []}, {"responses": [1, 2, 3]},
                                    {"responses": [{"response_range": {"kvs": [{}, {}]}}] * 3}])
def test_an_answer_to_another_question(answer: dict[str, Any]) -> None:
    class Other:
        def call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
            return answer

    with pytest.raises(CallFailed):
        Lease(Other(), "omq", PRIMARY, "", 10).look()


def test_nobody_is_in_sync_where_nothing_says_so(etcd: Fake) -> None:
    made = lease(etcd)
    made.register(PRIMARY, made.look())
    assert made.look() == Seen(None, made.look().term, frozenset(), 0, made.look().term_at, 0)
