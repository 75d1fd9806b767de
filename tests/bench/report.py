"""The tables of a bench run."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

_MIB = 1 << 20


def show(text: str) -> None:
    """Print now: a run takes minutes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be; the first to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "".join(
        (line[0].ljust(widths[0]) + "".join(
            f"  {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True)
        )).rstrip() + "\n"
        for line in lines)  # fmt: skip


def machine_table(found: dict[str, Any]) -> str:
    return "".join(f"{key.replace('_', ' ')}: {value}\n" for key, value in found.items())


def primitives_table(found: dict[str, float]) -> str:
    return table(("the machine itself", "per second"), (
        ("fdatasync of one 4 KiB page", f"{found['fdatasync']:,.0f}"),
        ("System V round trips", f"{found['round_trips']:,.0f}"),
        ("CRC-32C, 1 KiB buffers, MB", f"{found['crc32c_1k_mb']:,.0f}"),
        ("CRC-32C, 1 MiB buffers, MB", f"{found['crc32c_1m_mb']:,.0f}"),
    ))  # fmt: skip


def steadiness(seen: Sequence[float]) -> str:
    """How far the run can be believed: a disk that changes its speed changes every figure."""
    return (f"fdatasync/s over the run, {len(seen)} times: lowest {min(seen):,.0f}, "
            f"median {statistics.median(seen):,.0f}, highest {max(seen):,.0f}")


def rates_table(figures: Sequence[dict[str, Any]]) -> str:
    """Put, get and done: the rates and how they stand to fdatasync."""
    if not figures:
        return ""
    rows = [(each["title"], f"{each['rate']:,.0f}", f"{each['spread']:.0%}",
             f"{each['fdatasync']:,.0f}", f"{each['ratio']:.2f}",
             f"{each['aim']:g}" if each["aim"] else "") for each in figures]
    head = ("put, get, done", "messages/s", "spread", "fdatasync/s", "ratio", "aim")
    return table(head, rows) + "\n"


def details_table(figures: Sequence[dict[str, Any]]) -> str:
    """Latencies of each figure and what a message costs."""
    if not figures:
        return ""
    points = list(figures[0]["put_ms"])
    rows = []
    for each in figures:
        for key, what in (("put_ms", "put"), ("got_ms", "put to got"), ("done_ms", "put to done")):
            cells = [f"{each[key][point]:.2f}" for point in points]
            rows.append((f"{each['title']}: {what}", *cells))
    latencies = table(("latency in ms", *points), rows)
    names = list(figures[0]["cpu_us"])
    costs = table(
        ("CPU microseconds a message", *names, "journal bytes", "messages/block"),
        [(each["title"], *(f"{each['cpu_us'].get(name, 0):.1f}" for name in names),
          f"{each['journal_bytes']:,.0f}", f"{each['messages_per_block']:.1f}")
         for each in figures])  # fmt: skip
    return f"{latencies}\n{costs}"


def depth_table(found: dict[str, Any]) -> str:
    """The queue that is `depth` deep."""
    depth = found["depth"]
    states = (("rates_shallow", "1,000"), ("rates_deep", f"{depth:,}"),
              ("rates_after", f"1,000, after {2 * depth:,} deletes"))
    rows = []
    for style in found["rates_shallow"]:
        base = found["rates_shallow"][style]
        for key, words in states:
            each = found[key][style]
            rows.append((f"{style}, depth {words}", f"{each['rate']:,.0f}",
                         f"{each['rate'] / base['rate']:.2f}", f"{each['fdatasync']:,.0f}",
                         f"{each['ratio']:.2f}", f"{each['manager_us']:.1f}",
                         f"{each['manager_us'] / base['manager_us']:.2f}"))
    rates = table(("put and done at a depth", "messages/s", "to first", "fdatasync/s", "ratio",
                   "manager CPU us", "to first"), rows)
    return f"{rates}\n{_depth_lines(found)}"


def _depth_lines(found: dict[str, Any]) -> str:
    memory, fill = found["memory"], found["fill"]
    tenths = " ".join(f"{rate:,.0f}" for rate in fill["tenths"])
    rows = [
        ("fill, messages/s", f"{fill['rate']:,.0f}"),
        ("  by tenths", tenths),
        ("fill with random sizes, messages/s", f"{found['fill_random']['rate']:,.0f}"),
        ("empty, messages/s", f"{found['drain']['rate']:,.0f}"),
        ("empty of random sizes, messages/s", f"{found['drain_random']['rate']:,.0f}"),
        ("journal bytes a message put", f"{found['journal_bytes']:,.0f}"),
        ("index bytes a message (aim 200)", f"{memory['index_bytes_per_message']:.1f}"),
        ("segment, MiB", f"{memory['segment_bytes'] / _MIB:,.1f}"),
        ("queue.manager resident, MiB", _resident(memory["manager"])),
        ("pool.writer resident, MiB", _resident(memory["pool_writer"])),
    ]
    rows += [(f"restart after {each['signal']}, s (aim 5)",
              f"{each['ready_s']:.2f} (the stop {each['stop_s']:.2f}, the pool "
              f"{'up to date' if each['settled'] else 'behind'})") for each in found["restart"]]
    rows += [(f"checkpoint {key}", _checkpoint_text(value))
             for key, value in found["checkpoints"].items()]
    rows += [(f"emptied: {folder}, MiB", f"{size / _MIB:,.1f}")
             for folder, size in found["spool_bytes"].items() if size]
    return "".join(f"{name:<38}{value}\n" for name, value in rows)


def _resident(found: dict[str, int]) -> str:
    whole, own = found["resident"] / _MIB, found["own"] / _MIB
    return f"{whole:,.1f} (its own {own:,.1f})"


def _checkpoint_text(value: Any) -> str:
    if isinstance(value, dict):
        return f"median {value['median']:,.3g}, highest {value['highest']:,.3g}"
    return str(value)
