"""The result backend of Celery, where no manager is needed."""

from __future__ import annotations

from typing import Any

import pytest

from omq.base.errors import MessageTooLong, OmqError, ShuttingDown

celery = pytest.importorskip("celery", reason="the extra `celery` is not installed")


@pytest.fixture
def backend() -> Any:
    from omq.tasks.celery_results import OmqBackend

    app = celery.Celery("test", set_as_current=False)
    app.conf.update(result_backend_always_retry=True, result_backend_max_retries=3,
                    result_backend_base_sleep_between_retries_ms=0,
                    result_backend_max_sleep_between_retries_ms=0)
    return OmqBackend(app, url="omq:///nowhere")


def tried(backend: Any, error: OmqError) -> int:
    """How often what fails so is done."""
    times = []

    def fails() -> None:
        times.append(1)
        raise error

    with pytest.raises(type(error)):
        backend._ensure_retryable(fails)
    return len(times)


def test_a_manager_that_is_away_is_asked_again(backend: Any) -> None:
    """Where the program says so. What is wrong with the result itself does not get better."""
    assert tried(backend, ShuttingDown()) == 4
    assert tried(backend, MessageTooLong(queue="CELERY.RESULTS", size=9, limit=5)) == 1
