"""Run in examples/testing: pytest"""

import shop

import omq


def test_an_order_is_shipped(omq_instance):
    shop.order("alice", "lamp")
    (order,) = omq_instance.drain("ORDERS", shop.ship)
    assert order.error == ""
    assert [each.body for each in omq_instance.drain("SHIPPED")] == [b"alice"]


def test_who_pays_is_not_reminded(omq_instance):
    shop.order("alice", "lamp")
    shop.order("bob", "lamp")
    shop.paid("bob")
    assert omq_instance.drain("REMINDERS") == []
    omq_instance.pass_time(shop.WEEK_S)
    assert [each.json["customer"] for each in omq_instance.drain("REMINDERS")] == ["alice"]


def test_what_cannot_be_shipped_is_tried_again_after_a_minute(omq_instance):
    shop.order("alice", "sold out")
    assert [each.error for each in omq_instance.drain("ORDERS", shop.ship)] == [
        "LookupError: there is none left"]
    assert omq_instance.drain("ORDERS", shop.ship) == []
    omq_instance.pass_time(60)
    assert [each.attempts for each in omq_instance.drain("ORDERS", shop.ship)] == [1]
    assert len(omq_instance.drain("POISON")) == 1


def test_a_worker_and_a_manager_that_is_killed(omq_instance):
    omq_instance.run("omq", "worker", "shop:ship", "--queue", "ORDERS")
    shop.order("alice", "lamp")
    omq_instance.kill_manager()
    with omq.connect(name="customer") as connection, connection.reader("SHIPPED") as reader:
        (parcel,) = reader.next(timeout_s=30)
        assert parcel.body == b"alice"
        parcel.done()


def test_an_order_survives_a_power_cut(omq_instance):
    number = shop.order("alice", "lamp")
    omq_instance.lose_unsynced()
    assert [each.message_id for each in omq_instance.drain("ORDERS")] == [number]


def test_a_queue_of_this_test_alone(omq_instance, omq_queues):
    name = omq_queues("GIFTS", max_depth=1)
    with omq_instance.connect() as connection:
        connection.put(name, b"a book")
    assert omq_queues.bodies(name) == [b"a book"]
