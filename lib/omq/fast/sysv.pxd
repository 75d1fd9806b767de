# System V calls, made without Python in between: semop(2), msgrcv(2), msgsnd(2).

from cpython.exc cimport PyErr_CheckSignals
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE

cdef extern from "<sys/sem.h>" nogil:
    ctypedef struct sembuf "struct sembuf":
        unsigned short sem_num
        short sem_op
        short sem_flg
    int semop(int semid, sembuf *sops, size_t nsops)

cdef extern from "<sys/msg.h>" nogil:
    int msgsnd(int msqid, const void *msgp, size_t msgsz, int msgflg)
    ssize_t msgrcv(int msqid, void *msgp, size_t msgsz, long msgtyp, int msgflg)

    int IPC_NOWAIT

cdef extern from "<errno.h>" nogil:
    int errno
    int ENOMSG, EINTR

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<time.h>" nogil:
    ctypedef struct timespec "struct timespec":
        long long tv_sec
        long long tv_nsec
    int CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME
    int clock_gettime(int clock, timespec *now)


cdef inline bint release(int semaphore) noexcept:
    """Raise the semaphore by one; False: it was not raised. Never blocks."""
    cdef sembuf operation
    operation.sem_num = 0
    operation.sem_op = 1
    operation.sem_flg = 0
    return semaphore >= 0 and semop(semaphore, &operation, 1) == 0


cdef inline int acquire(int semaphore) noexcept:
    """Wait until it can be lowered by one. 1: it was; 0: a signal came; -1: anything else."""
    cdef sembuf operation
    cdef int done, reason
    operation.sem_num = 0
    operation.sem_op = -1
    operation.sem_flg = 0
    with nogil:
        done = semop(semaphore, &operation, 1)
        reason = errno
    return 1 if done == 0 else 0 if reason == EINTR else -1


cdef inline bint send(int queue, bytearray message) noexcept:
    """A message of a type, both in `message`, onto the queue; False: it was not taken. Never
    blocks."""
    return (PyByteArray_GET_SIZE(message) >= 8
            and msgsnd(queue, PyByteArray_AS_STRING(message), PyByteArray_GET_SIZE(message) - 8,
                       IPC_NOWAIT) == 0)


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


cdef inline bint wait_for(int queue, unsigned int kind, list out) except -1:
    """Wait for one message, and take it if it is of this kind. A signal ends the wait. False:
    something else did."""
    cdef long long message[257]
    cdef ssize_t got
    cdef int reason
    with nogil:
        got = msgrcv(queue, message, 256 * 8, 0, 0)
        reason = errno
    if got < 0:
        return reason == EINTR
    if message[0] == kind:
        out.append((<char *>&message[1])[:got])
    return True


cdef inline long long mono_ns() noexcept nogil:
    """Of a clock that is only for differences."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1000000000 + now.tv_nsec


cdef inline long long boot_ns() noexcept nogil:
    """As omq.base.clock.monotonic_ns."""
    cdef timespec now
    clock_gettime(CLOCK_BOOTTIME, &now)
    return now.tv_sec * 1000000000 + now.tv_nsec


cdef inline long long wall_ns() noexcept nogil:
    """As omq.base.clock.wall_ns."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * 1000000000 + now.tv_nsec


cdef inline int run_handlers() except -1:
    """Handlers in Python of the signals that have come: else they run when Python does."""
    return PyErr_CheckSignals()


cdef inline bint gather(int queue, unsigned int kind, list out, Py_ssize_t limit,
                        Py_ssize_t wanted, long long wait_ns) except -1:
    """Let others run and take what they send, for so long or until `out` has as many as wanted."""
    cdef long long end = mono_ns() + wait_ns
    while len(out) < wanted and mono_ns() < end:
        with nogil:
            sched_yield()
        if not take_off(queue, kind, out, limit):
            return False
    return True
