cdef Py_ssize_t take_row(object rows, unsigned int[::1] free) except -1
cdef int give_rows(object rows, unsigned int[::1] free, unsigned int[::1] given,
                   Py_ssize_t count) except -1
cdef Py_ssize_t take_record(object slots) except -1
cdef int give_record(object slots, Py_ssize_t slot) except -1
