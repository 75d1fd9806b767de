"""omqrecover: looks into a spool that does not run, says what is damaged, repairs it, rebuilds it.

    main             command line             survey          the scan, put together
    control_survey, journal_survey, pool_survey, body_survey    one part of the spool each
    archive          opens an archived file   history         the journal and its archive as one
    ledger           what must be alive       plan            decisions for a spool, its stamp
    repairs          one function an action   apply           runs them
    record_repairs   those of pool records    rebuilt_records records made again from history
    originals        keeps what is changed    pending_pool    the pool as the next start sees it
    rebuild          media recovery           bulk_rebuild    what it does in bulk
    extract          bodies of a dead spool   conditions      which messages: --where
    restore          out of an object store   identity        whose files these are

The decision table is core.judge.cases, shared with the start and omqcheck.

Nothing here talks to a daemon: the tool holds the manager's lock, or refuses and names who does.
"""
