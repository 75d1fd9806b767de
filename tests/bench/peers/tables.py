"""What a run of the comparison found, as text and as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from tests.bench import report
from tests.bench.document import markdown_table
from tests.bench.peers.rounds import WORKS, Work

OURS = "omq"
UNSTEADY = 3.0
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def multiple(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """omq's rate by theirs: the median over the rounds, in each of which the disk was more alike
    for both than in two medians."""
    return statistics.median(
        mine["rate"] / its["rate"] if its["rate"] else math.inf
        for mine, its in zip(ours["rounds"], theirs["rounds"], strict=True))


def ours_at(record: dict[str, Any], work: str) -> dict[str, Any] | None:
    return next((each for each in record["rates"]
                 if each["work"] == work and each["peer"] == OURS), None)


def best_peer(record: dict[str, Any], work: str, *, lean: bool) -> dict[str, Any] | None:
    """The quickest of the others at this work; unless `lean`, of those with a usual library."""
    return max((each for each in record["rates"] if each["work"] == work and each["peer"] != OURS
                and (lean or not record["systems"][each["peer"]]["lean"])),
               key=lambda each: float(each["rate"]), default=None)


def rates(record: dict[str, Any], work: str) -> Table:
    """One work: each system with omq's multiple of it; CPU time a message tells where it went."""
    found = [each for each in record["rates"] if each["work"] == work]
    ours = ours_at(record, work)
    title = next(each.title for each in WORKS if each.name == work)
    head = (title, "messages/s", "lowest", "highest", "omq / it", "rate / fdatasync",
            "server CPU us", "clients CPU us", "all cores full at")
    cores = record["machine"]["usable_cores"]
    rows = [(record["systems"][each["peer"]]["title"], f"{each['rate']:,.0f}",
             f"{each['lowest']:,.0f}", f"{each['highest']:,.0f}",
             f"{multiple(ours, each):.2f}" if ours else "-",
             f"{each['rate'] / each['fdatasync']:.2f}", _server(each["cpu_us"]),
             f"{each['cpu_us']['clients']:.0f}",
             f"{cores * 1e6 / max(1.0, sum(each['cpu_us'].values())):,.0f}") for each in found]
    return head, rows


def latencies(record: dict[str, Any]) -> Table:
    head = ("durable put under half load, ms", "puts/s", "p50", "p99", "p99.9", "p99: omq / it")
    found = record["latencies"]
    ours = {each["load"]: each["p99"] for each in found if each["peer"] == OURS}
    rows = []
    for each in found:
        words = ", at half of the best peer's rate" if each["load"] == "same" else ""
        rows.append((record["systems"][each["peer"]]["title"] + words, f"{each['rate']:,.0f}",
                     *(f"{each[point]:.2f}" for point in ("p50", "p99", "p99.9")),
                     f"{ours['own'] / each['p99']:.2f}" if ours else "-"))
    return head, rows


def syncs(record: dict[str, Any]) -> Table:
    head = ("answers after its sync?", "put", "syncs a put", "done", "syncs a done")
    rows = [(record["systems"][name]["title"], _yes(each["put_waits"]),
             f"{each['put_syncs']:.1f}", _yes(each["done_waits"]), f"{each['done_syncs']:.1f}")
            for name, each in record["syncs"].items()]
    return head, rows


def aims(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The aims that this run can tell, in the form of tests/bench/aims."""
    found = []
    for work in WORKS:
        ours = ours_at(record, work.name)
        if ours is not None:
            found += _aims_of(record, work, ours)
    own = {each["peer"]: each for each in record["latencies"] if each["load"] == "own"}
    if OURS in own and len(own) > 1:
        lowest = min((each for name, each in own.items() if name != OURS),
                     key=lambda each: float(each["p99"]))
        found.append({
            "aim": "p99 of a durable put under half load: below every peer's",
            "found": f"{own[OURS]['p99']:.2f} ms at {own[OURS]['rate']:,.0f}/s; lowest peer "
                     f"{lowest['p99']:.2f} ms at {lowest['rate']:,.0f}/s "
                     f"({record['systems'][lowest['peer']]['title']})",
            "reached": own[OURS]["p99"] < lowest["p99"],
            "details": {"limit": lowest["p99"]}})  # fmt: skip
    return found


def _aims_of(record: dict[str, Any], work: Work, ours: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for limit, lean, what in ((work.lean, True, "the best peer with its leanest client"),
                              (work.usual, False, "the best peer with its usual library")):
        best = best_peer(record, work.name, lean=lean)
        if best is not None:
            ratio = multiple(ours, best)
            found.append({
                "aim": f"{work.title}: at least {limit:g} x {what}",
                "found": f"{ratio:.2f} x {record['systems'][best['peer']]['title']}: "
                         f"{ours['rate']:,.0f} and {best['rate']:,.0f} messages/s",
                "reached": ratio >= limit, "details": {"limit": limit}})  # fmt: skip
    server, clients = ours["cpu_us"]["server"], ours["cpu_us"]["clients"]
    found.append({
        "aim": f"{work.title}: processor time of a message at most {work.cpu_us[0]} + "
               f"{work.cpu_us[1]} us, manager + clients",
        "found": f"{server:.0f} + {clients:.0f} us",
        "reached": server <= work.cpu_us[0] and clients <= work.cpu_us[1],
        "details": {"limit": work.cpu_us}})  # fmt: skip
    return found


def text(record: dict[str, Any]) -> str:
    """For the terminal."""
    parts = [report.machine_table(record["machine"]),
             report.primitives_table(record["primitives"]),
             report.steadiness(record["fdatasync_seen"])]
    parts += [report.table(*each) for each in _tables(record)]
    parts.append(_settings(record, "{title}, {version}: {settings}"))
    return "\n".join(parts)


def markdown(record: dict[str, Any]) -> str:
    """For the document."""
    found, primitives = record["machine"], record["primitives"]
    words = (
        f"Measured {found['time']}: {found['processor']}, {found['usable_cores']} cores, "
        f"{found['memory_bytes'] >> 30} GiB, Linux {found['kernel']}, {found['file_system']}, "
        f"Python {found['python']}; load average at the start "
        f"{found['load_average'][0]}.\n\nThe machine itself in the same run: "
        f"{primitives['fdatasync']:,.0f} fdatasync of 4 KiB/s, {primitives['round_trips']:,.0f} "
        f"System V round trips/s, CRC-32C {primitives['crc32c_1k_mb']:,.0f} MB/s of 1 KiB "
        f"buffers. {report.steadiness(record['fdatasync_seen'])}.\n{_unsteady(record)}")
    parts = [words, *(markdown_table(*each) for each in _tables(record)),
             _settings(record, "* **{title}** ({version}): {settings}.")]
    return "\n".join(parts)


def _tables(record: dict[str, Any]) -> list[Table]:
    works = [work.name for work in WORKS
             if any(each["work"] == work.name for each in record["rates"])]
    found = [*(rates(record, name) for name in works), latencies(record), syncs(record)]
    return [each for each in found if each[1]]


def _settings(record: dict[str, Any], form: str) -> str:
    return "".join(form.format(**each) + "\n" for each in record["systems"].values())


def _server(cpu_us: dict[str, float]) -> str:
    return f"{cpu_us['server']:.0f}" if "server" in cpu_us else "(in the clients)"


def _unsteady(record: dict[str, Any]) -> str:
    """A warning when the disk was not the same for all."""
    lowest, *_, highest = statistics.quantiles(record["fdatasync_seen"], n=10)
    if highest < UNSTEADY * lowest:
        return ""
    return (f"\n**The disk was not the same for all**: a tenth of the times it did less than "
            f"{lowest:,.0f} syncs/s, a tenth more than {highest:,.0f}. Somebody else used it; "
            "these figures show that the comparison works, not who is quicker.\n")


def _yes(waits: bool) -> str:  # noqa: FBT001
    return "after" if waits else "before"
