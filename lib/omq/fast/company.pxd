cdef Py_ssize_t _PAUSE_BITS

cdef class Company:
    cdef Py_ssize_t _most, _wanted, _before, _vain, _pause
    cdef bint _proven
    cpdef Py_ssize_t wanted(self, Py_ssize_t count) except -1
    cpdef int had(self, Py_ssize_t count, bint waited) except -1
