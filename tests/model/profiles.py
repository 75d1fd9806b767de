"""How long the model tests search: OMQ_MODEL=long for hours, OMQ_MODEL=N for N random examples,
OMQ_MODEL=quick:N for N fixed ones whose failure is not shrunk (tests/model/mutants.py).

Without it the examples are the same on every machine (derandomised), so that a change of the code
is the only thing that changes the result.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def profile(examples: int, steps: int) -> settings:
    """Settings of a state machine; `examples` is that of the run in CI."""
    asked = os.environ.get("OMQ_MODEL", "ci")
    if asked == "ci":
        return settings(max_examples=examples, stateful_step_count=steps, deadline=None,
                        derandomize=True, suppress_health_check=_HEALTH)
    if asked.startswith("quick:"):
        return settings(max_examples=int(asked[6:]), stateful_step_count=steps, deadline=None,
                        derandomize=True, suppress_health_check=_HEALTH,
                        report_multiple_bugs=False, phases=[Phase.generate])
    count = 20_000 if asked == "long" else int(asked)
    return settings(max_examples=count, stateful_step_count=steps, deadline=None,
                    suppress_health_check=_HEALTH, print_blob=True, report_multiple_bugs=False,
                    phases=[Phase.generate, Phase.shrink])
