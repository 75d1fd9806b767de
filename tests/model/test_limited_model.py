"""The model's machine on queues with limits that never bind: keys by the group, so many at once
that nobody reaches it. Whatever happens, over every death, must be what happens without limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from omq.core.engine.limit_rules import LimitRules
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import FIRST_QUEUE
from tests.model.driver import World, rules
from tests.model.instance import Instance
from tests.model.profiles import profile
from tests.model.test_model import Machine

LIMITS = LimitRules(in_work_max=100_000, by="group", key_in_work_max=100_000, keys_max=10)


def limited_rules() -> list[QueueRules]:
    """Every queue of users has keys."""
    return [each if each.queue < FIRST_QUEUE else replace(each, limits=LIMITS) for each in rules()]


class LimitedWorld(World):
    """As there, with such queues."""

    def make_instance(self, root: Path) -> Instance:
        return Instance(root, limited_rules())


class LimitedMachine(Machine):
    """See the module."""

    def make_world(self, root: Path) -> World:
        return LimitedWorld(root)


LimitedMachine.TestCase.settings = profile(examples=20, steps=50)
TestLimited = LimitedMachine.TestCase
