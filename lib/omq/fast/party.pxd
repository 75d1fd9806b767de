cdef class Party:
    cdef public unsigned long long client, token
    cdef public long long pid, uid
    cdef public Py_ssize_t slot, pool_file, active
    cdef public bint owns
