"""omq below programs that know a task queue of their own: Celery (kombu), dramatiq, omq worker.

Nothing here is imported unless that library is there; `pip install 'omq-base[celery]'` and
`'omq-base[dramatiq]'` bring them. lib/omq/docs/TASKS.md says which to use when.
"""
