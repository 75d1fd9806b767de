cdef Py_ssize_t take_record(object slots) except -1
cdef int give_record(object slots, Py_ssize_t slot) except -1
