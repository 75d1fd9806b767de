from omq.fast.party cimport Party
from omq.fast.waiter cimport Waiter

cdef class ClientState:
    cdef public Party party
    cdef public bytes token
    cdef public object reply, request
    cdef public bint trusted, auxiliary, prompt, gone
    cdef public unsigned long long sequence
    cdef public object cancelled  # as large as its client said
    cdef public long long look_ns
    cdef public Py_ssize_t queue
    cdef public unsigned int lost
    cdef public set noted
    cdef public Waiter waiter
    cdef public dict rights
    cdef public tuple last
    cdef public int semaphore
