# System V calls, made without Python in between: semop(2), msgrcv(2).

cdef extern from "<sys/sem.h>" nogil:
    ctypedef struct sembuf "struct sembuf":
        unsigned short sem_num
        short sem_op
        short sem_flg
    int semop(int semid, sembuf *sops, size_t nsops)

cdef extern from "<sys/msg.h>" nogil:
    ssize_t msgrcv(int msqid, void *msgp, size_t msgsz, long msgtyp, int msgflg)

    int IPC_NOWAIT

cdef extern from "<errno.h>" nogil:
    int errno
    int ENOMSG


cdef inline bint release(int semaphore) noexcept:
    """Raise the semaphore by one; False: it was not raised. Never blocks."""
    cdef sembuf operation
    operation.sem_num = 0
    operation.sem_op = 1
    operation.sem_flg = 0
    return semaphore >= 0 and semop(semaphore, &operation, 1) == 0


cdef inline bint take_off(int queue, unsigned int kind, list out, Py_ssize_t limit) except -1:
    """What lies on the queue, of this kind, until `out` is full. False: something else than an
    empty queue ended it."""
    cdef long long message[257]  # the kind, and no more bytes than are read into it
    cdef ssize_t got
    while len(out) < limit:
        got = msgrcv(queue, message, 256 * 8, 0, IPC_NOWAIT)
        if got < 0:
            return errno == ENOMSG
        if message[0] == kind:
            out.append((<char *>&message[1])[:got])
    return True
