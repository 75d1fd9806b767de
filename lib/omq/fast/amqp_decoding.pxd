cdef Py_ssize_t _DEPTH_MAX, _NO_BYTES_MAX, _SYMBOLS_MAX, _CACHED_BYTES_MAX
cdef dict _symbols, _CONSTANTS, _WHOLE, _OTHER

cdef class Decoder:
    cdef public bytes data
    cdef public Py_ssize_t at, end, stop
    cdef Py_ssize_t _no_bytes
    cdef public object named
    cpdef int over(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef object value(self, Py_ssize_t depth=*)
    cpdef bytes cut_out(self)
    cdef void _pass_over(self, Py_ssize_t depth) except *
    cpdef void skip(self, Py_ssize_t depth=*) except *
    cdef unsigned int byte(self) except? 256
    cdef unsigned long long number(self, Py_ssize_t size) except? 77
    cdef bytes raw(self, unsigned long long size)
    cdef long long descriptor(self) except? -2
    cdef Py_ssize_t fields(self) except -1
    cdef Py_ssize_t _opened(self, Py_ssize_t width) except -1
    cdef unsigned long long _counted(self, Py_ssize_t width, Py_ssize_t ends) except? 77
    cdef object _described(self, Py_ssize_t depth)
    cdef object of(self, unsigned int code, Py_ssize_t depth)
    cdef object _fixed(self, unsigned int code)
    cdef object _variable(self, unsigned int code)
    cdef object _compound(self, unsigned int code, Py_ssize_t depth)
    cdef list _list(self, unsigned long long count, Py_ssize_t depth)
    cdef dict _map(self, unsigned long long count, Py_ssize_t depth)
    cdef object _array(self, unsigned int code, Py_ssize_t depth)

cdef object _symbol(bytes raw)
