cdef Py_ssize_t _MAGIC, _CURRENT, _LISTED, _TOKEN, _COUNT, _TEXT
cdef Py_ssize_t _ROWS_AT, _ROW, _ROWS_MAX, _TEXT_AT, _TEXT_MAX

cdef class Note:
    cdef object _area, _longs, _ints
    cdef Py_ssize_t _rows, _text
    cpdef int current(self, unsigned long long lease) except -1
    cpdef int listed(self, unsigned long long lease) except -1
    cpdef bint settled(self, bytes row, bytes text=*) except -1
