"""The lease in etcd, and the records next to it: which transactions there are, and what they owe.

    PREFIX/UUID/primary   {"member", "term", "address"}; lives with a lease: who serves
    PREFIX/UUID/term      {"term", "member", "began"}: the latest term that was given, to whom, and
                          whether that member was ready to serve under it
    PREFIX/UUID/in_sync   {"members": ["b"]}: who has everything that was ever acknowledged;
                          {"members": null}: replies wait for nobody, so anybody may be next

A transaction compares what it was decided from (the revision at which a key was changed last, or
that there is none) and writes all or nothing, so of two that were decided from one state one holds.

    register   no primary, and no term or an earlier one: people say that this member's term counts
    resume     no primary, and the term is this member's: the same primary goes on
    promote    no primary, the term is the one that this standby follows (or one under which nobody
               ever served), and it is in sync: the next term is this member's
    begin      the key is ours: nothing is in sync with the new term yet
    in_sync    the key is ours: another set

Invariants: 1. the term only rises; 2. who wins it holds the key in the same transaction; 3. the key
is held by one: it is made where there is none, and goes with its lease; 4. a set is written by the
holder of the key alone, and never from an older set than the last; 5. where etcd knows no term, or
an earlier one than this member, it has forgotten: nothing is won (TermUnknown).

Times are those of omq.base.clock.monotonic_ns: the end of a lease is counted from before it was
asked for, with what etcd granted, less MARGIN. etcd counts from later, so it gives the key to
nobody before. A host that sleeps counts on.

A call without an answer may have been carried out, at once or later. It was decided from revisions
that hold once, so it is repeated as it is, or what is there is read first.

Errors: CallFailed; LeaseRefused; TermUnknown, NotInSync, LeaseTaken from what is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from omq.base import clock
from omq.base.errors import LeaseTaken, NotInSync, TermUnknown
from omq.services.standby.etcd import CallFailed, Stored, number, stored, text64
from omq.storage.instance_file import PRIMARY_MAX, TERM_MAX, Instance, is_member_name

MARGIN: Final = 0.1
"""Of a lease: its holder ends it so much earlier. Clocks of hosts that run at different rates
differ by less than a thousandth; the rest is for the way from a look at the clock to a client."""
MEMBERS_MAX: Final = 16
T = TypeVar("T")
InSync = frozenset[str] | None
"""Members; None: replies wait for nobody."""


class Calls(Protocol):
    """services.standby.etcd.Etcd."""

    def call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer. CallFailed, LeaseRefused."""


@dataclass(frozen=True, slots=True)
class Term:
    """The latest term. `began`: its member was ready to serve."""

    term: int
    member: str
    began: bool


@dataclass(frozen=True, slots=True)
class Holder:
    """Who serves, as etcd says."""

    member: str
    term: int
    address: str


@dataclass(frozen=True, slots=True)
class Seen:
    """All three keys at one moment, and when each was changed last."""

    holder: Holder | None
    term: Term | None
    in_sync: InSync
    primary_at: int = 0
    term_at: int = 0
    in_sync_at: int = 0


@dataclass(slots=True)
class Held:
    """A lease that this member has. `until`: monotonic ns; `primary_at`: when the key was made."""

    lease: int
    until: int
    primary_at: int
    term: int


class Lease:
    """See the module. One thread."""

    def __init__(self, calls: Calls, prefix: str, instance: Instance, address: str, ttl_s: int,
                 monotonic_ns: Callable[[], int] = clock.monotonic_ns) -> None:
        self._calls, self._address, self._ttl_s = calls, address, ttl_s
        self._now = monotonic_ns
        self._base = f"{prefix}/{instance.uuid.hex()}"

    def look(self) -> Seen:
        """What is there."""
        keys = [self._key(name) for name in ("primary", "term", "in_sync")]
        found = self._calls.call("/v3/kv/txn", {
            "success": [{"request_range": {"key": key}} for key in keys]})
        return _checked(lambda: _seen(found))

    # who wins

    def register(self, instance: Instance, seen: Seen) -> None:
        """This member's term counts. LeaseTaken; CallFailed also where something has changed."""
        if seen.holder is not None:
            raise LeaseTaken(member=seen.holder.member or "the primary", term=seen.holder.term)
        if seen.term is not None and (seen.term.term, seen.term.member) != (
                instance.term, instance.member) and seen.term.term >= instance.term:
            raise LeaseTaken(member=seen.term.member or "the primary", term=seen.term.term)
        self._must([self._none("primary"), self._same("term", seen.term_at)],
                   [self._put("term", _term(Term(instance.term, instance.member, began=True)))])

    def resume(self, instance: Instance, seen: Seen) -> Held | None:
        """The primary of this term goes on; None: another was quicker. TermUnknown."""
        check_term(instance, seen)
        return self._win(seen, instance.term, instance.member, [])

    def promote(self, instance: Instance, seen: Seen, *, behind: bool = False) -> Held | None:
        """The next term is this standby's; None: another was quicker. `behind`: people say that it
        may lack what was acknowledged. TermUnknown, NotInSync."""
        check_term(instance, seen)
        assert seen.term is not None
        if not behind:
            refuse_behind(instance, seen)
        term = seen.term.term + 1
        if term > TERM_MAX:
            raise CallFailed(f"there is no term after {TERM_MAX}")
        return self._win(seen, term, instance.member, [
            self._put("term", _term(Term(term, instance.member, began=False)))])

    def _win(self, seen: Seen, term: int, member: str, also: list[dict[str, Any]]) -> Held | None:
        asked = self._now()
        granted = self._calls.call("/v3/lease/grant", {"TTL": str(self._ttl_s)})
        lease, ttl = _checked(lambda: (number(granted, "ID"), number(granted, "TTL")))
        if not lease or not ttl:
            raise CallFailed("it grants no lease")
        said = json.dumps({"member": member, "term": term, "address": self._address})
        done = self._calls.call("/v3/kv/txn", {
            "compare": [self._none("primary"), self._same("term", seen.term_at),
                        self._same("in_sync", seen.in_sync_at)],
            "success": [self._put("primary", said, lease), *also]})
        if done.get("succeeded") is not True:
            self._revoke(lease)
            return None
        return Held(lease, self._end(asked, ttl), _checked(lambda: _revision(done)), term)

    def _end(self, asked: int, ttl: int) -> int:
        return asked + int(ttl * (1 - MARGIN) * clock.NS_PER_S)

    # who holds it

    def renew(self, held: Held) -> Seen | None:
        """What is there; None: etcd knows no such lease any more, or the key is not ours. A lease
        alone proves nothing: somebody may have removed the key, or may not let us read it."""
        asked = self._now()
        said = self._calls.call("/v3/lease/keepalive", {"ID": str(held.lease)})
        result = said.get("result")
        if not isinstance(result, dict):
            raise CallFailed("it does not say for how long the lease is")
        ttl = _checked(lambda: number(result, "TTL"))
        seen = self.look() if ttl else Seen(None, None, frozenset())
        if seen.primary_at != held.primary_at:
            return None
        held.until = max(held.until, self._end(asked, min(ttl, 2 * self._ttl_s)))
        return seen

    def begin(self, held: Held, instance: Instance, seen: Seen) -> None:
        """This member serves under its term; nobody is in sync yet. CallFailed also where the key
        is not ours any more."""
        self._must([self._ours(held), self._same("term", seen.term_at)],
                   [self._put("term", _term(Term(held.term, instance.member, began=True))),
                    self._put("in_sync", _set(frozenset()))])

    def note_in_sync(self, held: Held, seen: Seen, members: InSync) -> None:
        """As `begin`."""
        self._must([self._ours(held), self._same("in_sync", seen.in_sync_at)],
                   [self._put("in_sync", _set(members))])

    def release(self, held: Held) -> None:
        """The next one may take it at once. CallFailed: it runs out."""
        self._revoke(held.lease)

    def _revoke(self, lease: int) -> None:
        self._calls.call("/v3/lease/revoke", {"ID": str(lease)})

    # transactions

    def _must(self, compare: Sequence[Mapping[str, Any]], success: Sequence[Mapping[str, Any]]
              ) -> None:
        done = self._calls.call("/v3/kv/txn", {"compare": compare, "success": success})
        if done.get("succeeded") is not True:
            raise CallFailed("what it was decided from has changed meanwhile")

    def _key(self, name: str) -> str:
        return text64(f"{self._base}/{name}")

    def _none(self, name: str) -> dict[str, Any]:
        return {"key": self._key(name), "target": "CREATE", "create_revision": "0"}

    def _same(self, name: str, revision: int) -> dict[str, Any]:
        return {"key": self._key(name), "target": "MOD", "mod_revision": str(revision)}

    def _ours(self, held: Held) -> dict[str, Any]:
        return {"key": self._key("primary"), "target": "CREATE",
                "create_revision": str(held.primary_at)}

    def _put(self, name: str, value: str, lease: int = 0) -> dict[str, Any]:
        return {"request_put": {"key": self._key(name), "value": text64(value),
                                "lease": str(lease)}}


def check_term(instance: Instance, seen: Seen) -> None:
    """TermUnknown: etcd does not know what this member knows."""
    found = seen.term
    if found is None:
        raise TermUnknown(reason=f"etcd has no term of this instance, and this is the "
                          f"{instance.role.value} of term {instance.term}")
    if found.term < instance.term:
        raise TermUnknown(reason=f"etcd has term {found.term}, and this is the "
                          f"{instance.role.value} of term {instance.term}")


def is_later(instance: Instance, seen: Seen) -> bool:
    """Has another member got a later term, or this one?"""
    found = seen.term
    return found is not None and (found.term > instance.term or (
        found.term == instance.term and found.member != instance.member))


def refuse_behind(instance: Instance, seen: Seen) -> None:
    """NotInSync: this standby may lack what was acknowledged."""
    found = seen.term
    if found is not None and found.began and found.term > instance.term:
        raise NotInSync(member=instance.member, reason=f"it follows term {instance.term}, and "
                        f"{found.member or 'another member'} has served under term {found.term}")
    if seen.in_sync is not None and instance.member not in seen.in_sync:
        raise NotInSync(member=instance.member, reason="in sync is " + (
            ", ".join(sorted(seen.in_sync)) or "nobody"))


# what is in the keys


def _term(term: Term) -> str:
    return json.dumps({"term": term.term, "member": term.member, "began": term.began})


def _set(members: InSync) -> str:
    return json.dumps({"members": None if members is None else sorted(members)})


def _checked(read: Callable[[], T]) -> T:
    """CallFailed where an answer is not what it should be."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise CallFailed(f"it answers what cannot be read: {error}") from error


def _revision(done: Mapping[str, Any]) -> int:
    revision = number(done["header"], "revision")
    if not revision:
        raise ValueError("a transaction without a revision")
    return revision


def _seen(answer: Mapping[str, Any]) -> Seen:
    keys = [stored(each["response_range"]) for each in answer["responses"]]
    if len(keys) != 3:
        raise ValueError("not the answer to a question for three keys")
    primary, term, in_sync = keys
    return Seen(_decode(primary, _holder), _decode(term, _term_of), _decode(in_sync, _set_of)
                if in_sync.changed else frozenset(), primary.changed, term.changed, in_sync.changed)


def _decode(key: Stored, read: Callable[[dict[str, Any]], T]) -> T | None:
    if not key.changed:
        return None
    return read(json.loads(key.value))


def _name(found: Any) -> str:
    if not isinstance(found, str) or (found and not is_member_name(found)):
        raise ValueError("a member without a name")
    return found


def _count(found: Any) -> int:
    if type(found) is not int or not 0 <= found <= TERM_MAX:
        raise ValueError("a term that is none")
    return found


def _holder(found: dict[str, Any]) -> Holder:
    address = found["address"]
    if not isinstance(address, str) or len(address) > PRIMARY_MAX or not address.isprintable():
        raise ValueError("an address that is none")
    return Holder(_name(found["member"]), _count(found["term"]), address)


def _term_of(found: dict[str, Any]) -> Term:
    return Term(_count(found["term"]), _name(found["member"]), found["began"] is True)


def _set_of(found: dict[str, Any]) -> InSync:
    members = found["members"]
    if members is None:
        return None
    if not isinstance(members, list) or len(members) > MEMBERS_MAX:
        raise ValueError("members that are none")
    return frozenset(map(_name, members))
