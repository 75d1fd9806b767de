"""One run of the demo from the first message to the verdict.

The order matters at both ends: the sink listens before the instance starts, because its port is in
the instance's conf; at the end the feed stops first, then the instance in order, then the sink. The
check comes last, when nothing can arrive any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omq.base.paths import SpoolPaths
from tests.demo import corpus
from tests.demo.arrivals import Arrival, count_arrivals, maildir_arrivals, sink_arrivals
from tests.demo.conf import write_conf
from tests.demo.console import console
from tests.demo.crash import Crasher, CrashError
from tests.demo.feed import Feed
from tests.demo.generator import generate
from tests.demo.instance import Instance, InstanceError, running_instance
from tests.demo.live import Picture, Screen, View, channel_words, take_look
from tests.demo.mails import REMOTE_DOMAINS, Mail, Sent, store
from tests.demo.refusals import Refusals
from tests.demo.result import Result
from tests.demo.sink import SLOW_S, Sink, sink_process
from tests.demo.takeover import TakeOver, TakeOverError, wait_for_standbys
from tests.demo.verify import expected_count, verify
from tests.demo.watch import Sources, StalledError, Watch

DEFAULT_COUNT = 2000
_SKIPPED_LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose; `count` None: DEFAULT_COUNT, or all of `mail`."""

    mail: Path | None
    count: int | None
    seed: int
    connections: int
    crash: bool
    kept: bool
    standby: bool = False


Attach = Callable[[SpoolPaths], View]


class Session:
    """One run in the folder `base`; `attach` gives a look at the index of an instance."""

    def __init__(self, options: Options, base: Path, screen: Screen, attach: Attach) -> None:
        self._options = options
        self._attach = attach
        self._base = base
        self._screen = screen
        self._problems: list[str] = []
        self._sent: list[Sent] = []
        self._feed: Feed | None = None
        self._last: Picture | None = None

    def run(self) -> Result:
        """Prepare, feed, watch, stop, check; CorpusError, SinkError, InstanceError before that."""
        self._sent = store(self._mails(), self._base / "sent")
        with ExitStack() as stack:
            sink = stack.enter_context(sink_process(self._base / "sink"))
            stack.enter_context(self._noted(InstanceError, lambda: self._feed is not None))
            output = self._base / "omrc.log"
            instance = stack.enter_context(
                running_instance(self._base / "spool", output, sink.port,
                                 partial(self._configure, slow_port=sink.slow_port))
            )
            self._say(f"mail for {REMOTE_DOMAINS[0]} goes to a slow peer, 127.0.0.1:"
                      f"{sink.slow_port}, which takes {SLOW_S * 1000:.0f} ms a message")
            self._say(f"the instance is ready: SMTP on port {instance.smtp_port}")
            if not self._options.standby:
                shown = console(instance.paths.root, instance.paths.conf, self._base / "web.log")
                self._say(stack.enter_context(shown))
            self._feed = Feed(
                ("127.0.0.1", instance.smtp_port), self._sent, self._options.connections
            )
            stack.callback(self._feed.stop)
            over = self._with_standby(stack, instance, self._feed)
            self._drive(instance, sink, self._feed, over)
        return self._result(self._feed)

    def _configure(self, conf: Path, shipped: Path, sink_port: int, slow_port: int) -> None:
        write_conf(conf, shipped, sink_port, slow_port)
        if self._options.standby:
            wait_for_standbys(conf, self._maildirs)

    def _with_standby(self, stack: ExitStack, instance: Instance, feed: Feed) -> TakeOver | None:
        """A standby that follows, if one is wanted."""
        if not self._options.standby:
            return None
        made = TakeOver(instance, self._base, feed, feed.outcomes, self._say)
        stack.callback(made.close)
        try:
            made.make()
        except TakeOverError as error:
            raise InstanceError(str(error)) from error
        return made

    def _drive(self, instance: Instance, sink: Sink, feed: Feed, over: TakeOver | None) -> None:
        """Feed until everything went through; what goes wrong is noted, the check comes anyway."""
        crasher: Crasher | TakeOver | None = over
        if self._options.crash and over is None:
            crasher = Crasher(instance.paths.run, feed, self._say)

        def now() -> Instance:
            return over.current if over is not None else instance

        refusals = Refusals(instance.paths.event_log).tell
        sources = Sources(
            queues=lambda: take_look(lambda: self._attach(now().paths)),
            arrived=lambda: count_arrivals(self._maildirs, self._base / "sink"),
            expected=lambda: expected_count(self._sent, feed.outcomes),
            ended=lambda: "" if over is not None and over.running else _ended(now(), sink),
            refusals=refusals if over is None else str,
            channels=lambda: channel_words(now().paths.run, sink.slow_port),
        )
        watch = Watch(sources, feed, crasher, self._screen)
        feed.start()
        if crasher:
            crasher.start()
        try:
            with self._noted(StalledError):
                watch.until_quiet()
        finally:
            self._last = watch.latest
            feed.stop()
            if crasher:
                crasher.stop()
        with self._noted(CrashError), self._noted(TakeOverError):
            if crasher:
                crasher.join()

    def _result(self, feed: Feed) -> Result:
        feed.join()
        findings = verify(self._sent, feed.outcomes, self._arrivals())
        last = self._last
        return Result(
            base=self._base,
            feed=feed.counts(),
            findings=findings,
            recipients=sum(len(item.recipients) for item in self._sent),
            expected=expected_count(self._sent, feed.outcomes),
            feed_s=feed.seconds,
            total_s=last.elapsed_s if last else 0.0,
            queues=last.queues if last else None,
            problems=self._problems,
            kept=self._options.kept,
        )

    def _arrivals(self) -> Iterator[Arrival]:
        return itertools.chain(maildir_arrivals(self._maildirs), sink_arrivals(self._base / "sink"))

    @property
    def _maildirs(self) -> Path:
        """Mail that is delivered is not the journal's: it outlives the spool in a folder of its
        own."""
        return self._base / "mail" if self._options.standby else self._base / "spool" / "mail"

    def _mails(self) -> Iterator[Mail]:
        """The user's mail; else CPython's test messages and generated ones up to the count."""
        options = self._options
        source = corpus.Corpus(options.seed)
        if options.mail is not None:
            found = corpus.read_mailbox(options.mail)
            yield from itertools.islice(source.mails(found), options.count)
        else:
            wanted = DEFAULT_COUNT if options.count is None else options.count
            real = 0
            folder = corpus.cpython_folder()
            if folder is None:
                self._say("CPython's own test messages are not installed here: generated mail only")
            else:
                found = corpus.read_cpython(folder)
                for mail in itertools.islice(source.mails(found), wanted):
                    real += 1
                    yield mail
            self._say(f"{real} messages of CPython's tests, {wanted - real} generated ones")
            yield from generate(options.seed, wanted - real)
        for origin, reason in source.skipped[:_SKIPPED_LISTED_MAX]:
            self._say(f"skipped {origin}: it {reason}")
        if len(source.skipped) > _SKIPPED_LISTED_MAX:
            self._say(f"skipped {len(source.skipped)} messages in all")

    @contextmanager
    def _noted(
        self, kind: type[Exception], when: Callable[[], bool] = lambda: True
    ) -> Iterator[None]:
        """Turn this kind of error into a problem of the result."""
        try:
            yield
        except kind as error:
            if not when():
                raise
            self._problems.append(str(error))

    def _say(self, text: str) -> None:
        self._screen.say(text)


def _ended(instance: Instance, sink: Sink) -> str:
    if not instance.alive:
        return "the instance"
    return "" if sink.is_alive() else "the sink"
