"""Files of the spool: durable writes, journal, message pool, bodies. Bytes are defined in omq.format.

    disk, durable            the only modules that touch spool files; errors latch
    journal, journal_reader  append with group commit; scan, follow, tell torn from damaged
    pool, slots, control     checkpoint writes through the double-write file; free slots; poolctrl
    store, volatile          bodies that outlive their journal file; bodies that are never synced
    payloads, containers     read any body; one file for each large message
    spool                    make, open and lock a spool
"""
