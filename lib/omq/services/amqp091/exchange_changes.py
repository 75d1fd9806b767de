"""What a change of exchanges and bindings does to the table, and what it does on the disk.

An exchange that is auto_delete goes with the last binding that leads from it (exchange.declare),
and with an exchange go the bindings that lead to it, so one unbind may end several, one after the
other (`removed`).

Crash argument: of `exchanges`. What goes is cancelled in this order: exchanges, then bindings; so a
death in the middle leaves bindings that lead nowhere, which the next `load` cancels, or an
exchange that was to go, without a binding: it is bound again, or deleted.

Errors: none here; `carry_out` has those of put and cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omq.ipc.client.connection import Client
from omq.services.amqp091 import exchanges
from omq.services.amqp091.binding_index import Binding
from omq.services.amqp091.exchanges import Exchange, Exchanges, binding_record


@dataclass(slots=True)
class Change:
    """`record`: of what is durable; `keeps`, or it is dropped."""

    apply: Callable[[], Any]
    record: dict[str, Any] | None = None
    keeps: bool = False


def carry_out(native: Client, changes: Iterable[Change]) -> None:
    """On the disk, in a thread of the questions."""
    for each in changes:
        assert each.record is not None
        if each.keeps:
            exchanges.keep(native, each.record)
        else:
            exchanges.drop(native, [each.record])


def declared(table: Exchanges, name: str, wanted: Exchange) -> Change:
    """One exchange more."""

    def apply() -> None:
        table.known[name] = wanted

    return Change(apply, wanted.record(name) if wanted.durable else None, keeps=True)


def bound(table: Exchanges, exchange: str, binding: Binding, *, durable: bool) -> Change:
    """One binding more."""
    found = table.known[exchange]
    return Change(lambda: found.bind(binding, durable=durable),
                  binding_record(exchange, binding) if durable else None, keeps=True)


def removed(table: Exchanges, bindings: Iterable[tuple[str, Binding]] = (),
            names: Iterable[str] = (), *, durable_too: bool = True) -> list[Change]:
    """These bindings and exchanges go, and what goes with them. `durable_too`: also what is
    auto_delete and durable, which is a change of the disk."""
    ends: dict[str, None] = {}  # exchanges
    cut: dict[tuple[str, Binding], None] = {}
    left_names, left = list(names), list(bindings)
    leading: dict[str, list[tuple[str, Binding]]] = {}  # to an exchange
    for source, exchange in table.known.items():
        for each in exchange.bound:
            leading.setdefault(each.to, []).append((source, each))
    count = {name: len(each.bound) for name, each in table.known.items()}
    while left_names or left:
        if left_names:
            name = left_names.pop()
            if name not in ends and name in table.known:
                ends[name] = None
                left += [*leading.get(name, ()),
                         *((name, each) for each in table.known[name].bound)]
            continue
        one = left.pop()
        if one in cut:
            continue
        cut[one] = None
        source = one[0]
        count[source] -= 1
        exchange = table.known[source]
        if not count[source] and exchange.auto_delete and (durable_too or not exchange.durable):
            left_names.append(source)
    return [*(_ended(table, each) for each in ends), *(_unbound(table, *each) for each in cut)]


def _ended(table: Exchanges, name: str) -> Change:
    found = table.known[name]
    return Change(lambda: table.known.pop(name, None),
                  found.record(name) if found.durable else None)


def _unbound(table: Exchanges, exchange: str, binding: Binding) -> Change:
    found = table.known[exchange]
    return Change(lambda: found.unbind(binding),
                  binding_record(exchange, binding) if found.bound[binding] else None)
