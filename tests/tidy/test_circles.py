"""Modules that need each other, be it for types only, are one place cut in pieces. There are few
such circles; none grows, and the client and the manager's request server have none.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from tests.tidy.tree import imports, product

CIRCLES: dict[str, frozenset[str]] = {
    "AMQP 1.0's state machine": frozenset({
        "omq.amqp.connection", "omq.amqp.delivery", "omq.amqp.connection_events",
        "omq.amqp.links", "omq.amqp.session"}),
    "the engine's state and who uses it": frozenset({
        "omq.core.engine.duplicates", "omq.core.engine.lanes", "omq.core.engine.limited",
        "omq.core.engine.state"}),
    "the console and its pages": frozenset({
        "omq.cli.web.ages", "omq.cli.web.console", "omq.cli.web.rendering"}),
    "the console's gate": frozenset({"omq.cli.web.gate", "omq.cli.web.routes"}),
    "a session of amqp.server": frozenset({
        "omq.services.amqp.coordinator", "omq.services.amqp.endpoints",
        "omq.services.amqp.transacted_deliveries", "omq.services.amqp.client_identity",
        "omq.services.amqp.host",
        "omq.services.amqp.incoming", "omq.services.amqp.outgoing",
        "omq.services.amqp.put_outcomes", "omq.services.amqp.session", "omq.services.amqp.targets",
        "omq.services.amqp.transactions", "omq.services.amqp.two_phases"}),
    "a channel of AMQP 0-9-1": frozenset({
        "omq.services.amqp091.binding", "omq.services.amqp091.channel",
        "omq.services.amqp091.consuming", "omq.services.amqp091.declaring",
        "omq.services.amqp091.directory", "omq.services.amqp091.publishing",
        "omq.services.amqp091.channel_consumers", "omq.services.amqp091.routing",
        "omq.services.amqp091.session"}),
}
"""What still is one. A line may go, or lose a module; none is added."""


def _graph() -> dict[str, set[str]]:
    modules = {source.path.removeprefix("lib/").removesuffix(".py").replace("/", "."): source
               for source in product()
               if source.path.startswith("lib/omq/") and not source.path.endswith("__init__.py")}
    graph = {}
    for name, source in modules.items():
        named = {found for _, dotted in imports(source)
                 for found in (dotted, dotted.rpartition(".")[0]) if found in modules}
        graph[name] = named - {name}
    return graph


def test_no_other_circle() -> None:
    graph = _graph()
    assert len(graph) > 500
    for members in CIRCLES.values():
        assert members <= set(graph), members - set(graph)
        for name in members:
            graph[name] -= members
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("each needs the next: " + " -> ".join(error.args[1])) from None


def test_each_circle_is_still_one() -> None:
    graph = _graph()
    for where, members in CIRCLES.items():
        for begin in members:
            seen, left = set[str](), [begin]
            while left:
                for name in graph[left.pop()] & members - seen:
                    seen.add(name)
                    left.append(name)
            assert seen == members, f"{where}: {sorted(members - seen)} is in none any more"
