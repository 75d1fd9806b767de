"""What other task queues do, tried: a module for each, a function for each row of TASKS's table.

Each function does the thing on the library's own broker that needs no server (a queue in memory or
in a file; RQ, BullMQ and River have a server), and fails where the library does not. So it says
that there is such a feature, not what it survives. `tests/bench/test_tried.py` runs them,
`tests/tidy/test_tasks_table.py` looks at the table.
"""
