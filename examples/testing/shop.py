"""A shop: orders come in, parcels go out, and who has not paid after a week is reminded."""

import json

import omq

WEEK_S = 7 * 24 * 3600


def order(customer, article):
    """Take an order; its id."""
    with omq.connect(name="shop") as connection:
        body = json.dumps({"customer": customer, "article": article}).encode()
        number = connection.put("ORDERS", body)
        connection.put("REMINDERS", body, delay_s=WEEK_S, message_id=f"reminder-{customer}")
        return number


def paid(customer):
    """Nobody needs a reminder."""
    with omq.connect(name="shop") as connection:
        connection.cancel(f"reminder-{customer}")


def ship(order):
    """The work on an order: omq worker shop:ship --queue ORDERS."""
    if order["article"] == "sold out":
        raise LookupError("there is none left")
    with omq.connect(name="shop") as connection:
        connection.put("SHIPPED", order["customer"].encode())
