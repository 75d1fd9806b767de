"""The dramatiq program of the bench, as app.py is that of Celery.

    python -m tests.bench.tasks.dramatiq_app PATH COUNT RATE
"""

from __future__ import annotations

from importlib import import_module

import dramatiq

from tests.bench.tasks.sending import BROKER, note_done, send

MODULES = {
    "omq": ("omq.tasks.dramatiq_broker", "OmqBroker"),
    "redis": ("dramatiq.brokers.redis", "RedisBroker"),
    "rabbitmq": ("dramatiq.brokers.rabbitmq", "RabbitmqBroker"),
}
module, name = MODULES[BROKER["name"]]
dramatiq.set_broker(getattr(import_module(module), name)(url=BROKER["url"], **BROKER["options"]))
noted = dramatiq.actor(note_done, actor_name="noted")

if __name__ == "__main__":
    send(noted.send)
