"""One run of the demo from the first message to the verdict.

The order matters at both ends: the sink listens before the instance starts, because its port is in
the instance's conf; at the end the feed stops first, then the instance in order, then the sink. The
check comes last, when nothing can arrive any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from omq.core.index_view import IndexView
from omqdemo import corpus
from omqdemo.arrivals import Arrival, count_arrivals, maildir_arrivals, sink_arrivals
from omqdemo.crash import Crasher, CrashError
from omqdemo.feed import Feed
from omqdemo.generator import generate
from omqdemo.instance import Instance, InstanceError, running_instance
from omqdemo.live import Screen, take_look
from omqdemo.mails import Mail, Sent, store
from omqdemo.result import Result
from omqdemo.sink import Sink, sink_process
from omqdemo.verify import expected_count, verify
from omqdemo.watch import Sources, StalledError, Watch

_SKIPPED_LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose."""

    mail: Path | None
    count: int | None  # None: 2000, or all of `mail`
    seed: int
    connections: int
    crash: bool


DEFAULT_COUNT = 2000


def run(options: Options, base: Path, screen: Screen) -> Result:
    """Feed, watch and check; InstanceError or CorpusError when it does not come to a check."""
    sent = _prepare(options, base / "sent", screen)
    problems: list[str] = []
    with ExitStack() as stack:
        sink = stack.enter_context(sink_process(base / "sink"))
        stack.enter_context(_as_problem(problems))
        instance = stack.enter_context(
            running_instance(base / "spool", base / "omrc.log", sink.port)
        )
        screen.say(f"instance ready in {instance.paths.root}, SMTP on port {instance.smtp_port}")
        feed = Feed(("127.0.0.1", instance.smtp_port), sent, options.connections)
        stack.callback(feed.stop)
        watch = _feed_and_watch(options, instance, sink, feed, sent, screen, problems)
    return _result(base, sent, feed, watch, problems)
