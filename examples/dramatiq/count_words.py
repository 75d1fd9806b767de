"""An actor as in dramatiq's guide; only the broker is omq's."""

import sys

import dramatiq

from omq.tasks.dramatiq_broker import OmqBroker

dramatiq.set_broker(OmqBroker("omq:///var/tmp/orders"))


@dramatiq.actor
def count_words(text):
    print(len(text.split()), "words", flush=True)


if __name__ == "__main__":
    count_words.send(sys.argv[1])
