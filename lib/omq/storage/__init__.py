"""Files of the spool: durable writes, journal, message pool, bodies. omq.format has the bytes.

    disk, durable, files     the only modules that touch spool data; errors latch
    journal                  append with group commit
    journal_scan, _reader    what is valid, torn or damaged: in one file, in the whole journal
    journal_follower         what is new, for pool.writer
    pool, pool_scan          checkpoints through the double-write file; records in bulk
    slots, poolctrl          which slot a message gets; poolctrl
    store, volatile          bodies that outlive their journal file; bodies that are never synced
    payloads, containers     read any body; one file for each large message
    spool                    make, open and lock a spool
    segment                  the index's shared memory
"""
