"""Plans of the console: whose gives way."""

from __future__ import annotations

from omq.cli.operate.change_plan import Change, Doing
from omq.cli.web.action_plans import PLANS_MAX, Plans


def test_who_makes_many_plans_loses_his_own() -> None:
    plans, change = Plans(60.0), Change(Doing.HOLD, ())
    others = plans.add("other", change, "A", "all", ())
    mine = [plans.add("me", change, "A", "all", ()) for _ in range(2 * PLANS_MAX)]
    assert plans.take(mine[0], "me") is None and plans.take(mine[-1], "me") is not None
    assert plans.take(others, "other") is not None
