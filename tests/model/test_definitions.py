"""The state machine of test_model, with queues that are made, changed and removed meanwhile."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import rule

from omq.format.message import Part
from tests.model.defined import NAMES, ROWS, DefinedWorld, Keys
from tests.model.driver import draft
from tests.model.profiles import profile
from tests.model.test_model import Machine, clients, numbers

queues = st.sampled_from((*NAMES[:3], *NAMES[:3], *NAMES, "C"))
spares = st.sampled_from(NAMES)
VALUES = {"max_depth": ("3", "100"), "put": ("inhibited", "allowed"), "get": ("inhibited",),
          "attempts_max": ("1",), "lease_s": ("20",), "expiry_max_s": ("2", "40"),
          "expired_to": ("W6", "R0", "R1", "R2"), "dead_letter": ("W7", "R0", "R1", "R2"),
          "note": ("bound to an exchange", '{"a": ["=", "\\n"]}', "R0")}
definitions: st.SearchStrategy[Keys] = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from(values) for key, values in VALUES.items()})
cuts = st.integers(-4, 3)
kept = st.sampled_from([0, 1, 100])


class DefiningMachine(Machine):
    """See the module."""

    world: DefinedWorld

    def make_world(self, root: Path) -> DefinedWorld:
        return DefinedWorld(root)

    def _command(self, do: str, name: str, to: str, keys: Keys, cut: int, kept: int) -> None:
        crash = cut if cut >= 0 and not self.world.model.wishes else None
        self.world.command(do, name, to, keys, crash, lambda count: min(count, kept))

    @rule(name=queues, keys=definitions, cut=cuts, kept=kept)
    def define(self, name: str, keys: Keys, cut: int, kept: int) -> None:
        self._command("define", name, "", keys, cut, kept)

    @rule(name=queues, cut=cuts, kept=kept)
    def define_plain(self, name: str, cut: int, kept: int) -> None:
        self._command("define", name, "", {}, cut, kept)

    @rule(name=queues, keys=definitions, cut=cuts, kept=kept)
    def alter(self, name: str, keys: Keys, cut: int, kept: int) -> None:
        self._command("alter", name, "", keys, cut, kept)

    @rule(do=st.sampled_from(["rename", "roll_over", "delete"]), name=queues, to=spares, cut=cuts,
          kept=kept)
    def turn(self, do: str, name: str, to: str, cut: int, kept: int) -> None:
        if do == "roll_over" and name == "C":
            return  # its number is that of the file's queue to all rules here
        self._command(do, name, to, {}, cut, kept)

    @rule(number=clients, ends=st.lists(st.sampled_from(
        ["delete", "clear", "rename", "roll_over", "restart", "crash", "checkpoint", "alter",
         "sweep", "put", "settle"]), min_size=2, max_size=6), named=st.booleans())
    def live(self, number: int, ends: list[str], named: bool) -> None:  # noqa: FBT001
        """A queue is made and used; another one may name it; then things happen to it."""
        world, name, other = self.world, "R0", "R1"
        world.limit(60, space_left=True)
        world.clear(name)
        world.command("define", name, "", {})
        if named:
            world.command("define", other, "", {"dead_letter": name, "expired_to": name})
        for end in ["put", *ends]:
            there = world.book.numbers.get(name, ROWS - 1)
            if end in ("delete", "rename", "roll_over"):
                world.command(end, name, "R3", {})
            elif end == "alter":
                world.command(end, name, "", {"put": "inhibited"})
            elif end == "clear":
                world.clear(name)
            elif end == "sweep":
                world.sweep()
            elif end == "checkpoint":
                world.checkpoint()
            elif end == "settle":
                self.take(number, 3)
            elif end == "put":
                world.put_there(self._client(number), there, draft([Part(there, 4)], b"lives"))
            elif not world.model.wishes:
                if end == "restart":
                    world.restart()
                else:
                    world.crash(lambda count: count, survive=True)

    @rule(name=queues)
    def clear(self, name: str) -> None:
        self.world.clear(name)

    @rule(number=clients, name=queues)
    def truncate(self, number: int, name: str) -> None:
        self.world.truncate(self.world.clients[number], name)

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @rule(which=st.integers(6, 7), name=queues)
    def open(self, which: int, name: str) -> None:
        self.world.open(self.world.clients[which], name)

    @rule(number=clients, pick=numbers, count=st.integers(1, 3))
    def put_there(self, number: int, pick: int, count: int) -> None:
        """Mostly on queues that are there."""
        there = [self.world.book.numbers[name] for name in self.world.book.keys]
        stale = not there or pick % 6 == 5
        queue = 26 + pick % (ROWS - 26) if stale else there[pick % len(there)]
        for i in range(count):
            self.world.put_there(self._client(number), queue, draft(
                [Part(queue, pick % 10)], b"there %d" % i, persistent=pick % 5 > 0,
                container=pick % 11 == 0))

    @rule(what=st.sampled_from(["jump", "limit", "repeat"]), pick=numbers)
    def change(self, what: str, pick: int) -> None:
        """As there; what the file's queues are stays."""
        world = self.world
        if what == "jump":
            world.jump([-86400, -10, 10, 86400 * 365][pick % 4])
        elif what == "limit":
            world.limit([60, 20][pick % 2], space_left=pick % 3 > 0, reserve=[0, 9][pick % 5 > 2])
        else:
            client = self._client(pick)
            if 0 < client.sequence <= client.live.sequence:
                world.repeat(client)


for _name in ("put_keyed", "put_on_many", "get", "move_many", "commit_unit", "back_out",
              "die_noted", "both_wait", "wait_while_inhibited", "put_off_twice", "spread_and_end",
              "work_through", "settle_and_take", "settle_all", "retire", "next",
              "crash_in_request"):
    setattr(DefiningMachine, _name, None)  # what test_model tells of a queue, whoever made it

DefiningMachine.TestCase.settings = profile(examples=20, steps=50)
TestDefinitions = DefiningMachine.TestCase

