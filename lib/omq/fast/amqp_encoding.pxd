cdef Py_ssize_t _DEPTH_MAX, _SYMBOLS_MAX
cdef tuple _ONE
cdef dict _symbols, _WIDE, _SMALL, _ZERO, _DECIMALS, _WIDEST

cpdef bytes encoded(object value)
cpdef void put(bytearray out, object value, Py_ssize_t depth) except *
cpdef void text(bytearray out, str value) except *
cpdef void binary(bytearray out, bytes value) except *
cpdef void sized(bytearray out, unsigned int code, bytes raw) except *
cpdef bytes symbol(object value)
cpdef void uint(bytearray out, unsigned long long value) except *
cpdef void listed(bytearray out, bytearray content, Py_ssize_t count) except *
cdef void _compound(bytearray out, unsigned int code, bytearray content,
                   Py_ssize_t count) except *
cdef void _whole(bytearray out, object kind, object value) except *
cdef void _wide(bytearray out, object kind, object value) except *
cdef void _many(bytearray out, object kind, object value, Py_ssize_t depth) except *
cdef void _array(bytearray out, object value, Py_ssize_t depth) except *
cdef void _element(bytearray out, unsigned int code, bytes one, object value) except *
cdef void _other(bytearray out, object kind, object value) except *
