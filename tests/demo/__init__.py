"""The demo behind `make run`: real mail through a whole omq instance, checked from outside.

It knows omq by its command line, its spool and the read-only
view of its index, and judges only by what arrives in Maildirs and at the sink.
"""
