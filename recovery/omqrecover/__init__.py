"""omqrecover: looks into a spool that does not run, says what is damaged, repairs it, rebuilds it.

    main      command line                 cases      the decision table, as data
    survey    the scan, put together       plan       decisions for one spool, with its stamp
    control_survey, journal_survey, pool_survey, body_survey    one part of the spool each
    archive   opens an archived file       history    the journal and its archive as one sequence
    ledger    what history says is alive   shadow     pool records made again from history
    originals keeps what is changed        repairs    one function an action; apply runs them
    rebuild   media recovery               extract    bodies out of a dead spool

Nothing here talks to a daemon: the tool holds the manager's lock, or refuses and names who does.
"""
