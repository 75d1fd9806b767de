from omq.fast.party cimport Party

cdef class Waiter:
    cdef public Party party
    cdef public Py_ssize_t queue, want
    cdef public unsigned long long sequence, put
    cdef public object deadline, key  # as large as its client said
    cdef public long long turn
    cdef public unsigned int by
    cdef public bint auxiliary, waiting
