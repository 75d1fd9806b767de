"""How long the model tests search, by the environment variable OMQ_MODEL:

    ci (default)   the same examples on every machine; a failure is shown as it was found. With
                   OMQ_SHARE=K/N the first N-th of them
    shrink         the same, and a failure is made smaller first (minutes)
    N, long        N random examples (long: 20,000, hours), a failure made smaller
    quick:N        as ci, with N examples (tests/model/mutants.py)
    seeded:N       N examples from the seed that pytest's --hypothesis-seed names
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from tests.share import part

_HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def profile(examples: int, steps: int) -> settings:
    """Settings of a state machine; `examples` is that of the run in CI."""
    asked = os.environ.get("OMQ_MODEL", "ci")
    phases = [Phase.generate]
    kind, _, count = asked.partition(":")
    if kind not in ("ci", "shrink", "quick", "seeded"):
        return settings(max_examples=20_000 if asked == "long" else int(asked),
                        stateful_step_count=steps, deadline=None, suppress_health_check=_HEALTH,
                        print_blob=True, report_multiple_bugs=False,
                        phases=[*phases, Phase.shrink])
    if asked == "shrink":
        phases.append(Phase.shrink)
    return settings(max_examples=int(count) if count else part(examples),
                    stateful_step_count=steps, deadline=None, derandomize=kind != "seeded",
                    suppress_health_check=_HEALTH, report_multiple_bugs=False, phases=phases)
