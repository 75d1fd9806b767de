"""AMQP 1.0 without I/O: connections, sessions, links and deliveries as a state machine, bytes in,
bytes and events out (ISO 19464 part 2). Its codec is in omq.fast.

    connection   frames, channels, idle time, the end          session   windows, delivery ids
    links        credit, what a link says of itself            delivery  one message under way
    states       the states of a delivery                      terminus  sources and targets
    happenings   the events                                   attaching  attach and detach
    kinds        values of properties as texts                whole      bytes that are values

Not here: sockets, TLS, SASL, queues; whose code that is gives bytes to `Connection.receive`, asks
`Connection.event` until there is none, and sends what `Connection.take` gives.
"""
