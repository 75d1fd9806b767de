"""An outbox in Django: an order and the message of it, both or neither, whatever dies in between.

    python shop.py runserver --noreload    POST /orders with customer=NAME
    python shop.py relay                   puts what a crash has left: at the start, and by a timer

The message is a row of the order's own transaction. When that is committed the row is put on the
queue and deleted. Who dies before the put leaves the row for the next relay; who dies after it
puts once more under the same key, and the queue, which remembers keys for a day, takes it once.
"""

import json
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import django
from django.conf import settings

import omq

SPOOL = "/var/tmp/orders"
QUEUE = "RECEIPTS"
DAY_S = 86_400

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3",
                           "NAME": Path(__file__).with_name("shop.sqlite3")}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    ROOT_URLCONF=__name__,
    USE_TZ=True,
)
django.setup()

from django.core.management import execute_from_command_line
from django.db import connection as database
from django.db import models, transaction
from django.http import JsonResponse
from django.urls import path


class Order(models.Model):
    customer = models.CharField(max_length=100)

    class Meta:
        app_label = "shop"


class Outbox(models.Model):
    key = models.CharField(max_length=32, unique=True)
    body = models.BinaryField()

    class Meta:
        app_label = "shop"


def relay():
    """Put what is in the outbox. Two at once do no harm: the queue takes a key once."""
    with omq.connect(SPOOL, name="shop", timeout_s=2) as queues:
        with suppress(omq.QueueExists):
            queues.queues.define(QUEUE, dedupe_s=DAY_S)
        for row in Outbox.objects.order_by("pk"):
            queues.put(QUEUE, bytes(row.body), unique_key=row.key)
            row.delete()  # it is on the queue's disk now


def orders(request):
    with transaction.atomic():
        order = Order.objects.create(customer=request.POST["customer"])
        body = json.dumps({"order": order.pk, "customer": order.customer}).encode()
        Outbox.objects.create(key=uuid.uuid4().hex, body=body)
        # robust: the order is taken also when no message can be put now; a relay does it later.
        transaction.on_commit(relay, robust=True)
    return JsonResponse({"order": order.pk}, status=201)


urlpatterns = [path("orders", orders)]


def make_tables():
    """What `migrate` does in a program of more than one file."""
    there = database.introspection.table_names()
    with database.schema_editor() as editor:
        for model in (Order, Outbox):
            if model._meta.db_table not in there:
                editor.create_model(model)


if __name__ == "__main__":
    make_tables()
    if sys.argv[1:] == ["relay"]:
        relay()
    else:
        execute_from_command_line(sys.argv)
