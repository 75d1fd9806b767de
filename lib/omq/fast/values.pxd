cdef unsigned int _PARTS_MAX
cdef Py_ssize_t _HEAD, _PART, _FIRST
cdef int _MAGIC_1, _MAGIC_2, _VERSION

cpdef object value_in(object payload, Py_ssize_t at, Py_ssize_t length, bytes name)
