cdef unsigned int _METHOD, _HEADER, _BODY, _HEARTBEAT, _END
cdef unsigned long long _PUBLISH, _ACK, _BASIC
cdef Py_ssize_t _HEAD, _OVERHEAD
cdef str _FRAMING

cdef class Frames:
    cdef public Py_ssize_t most
    cdef Py_ssize_t _at, _have, _wanted, _stop
    cdef list _parts
    cdef bytes _data, _exchange_bytes, _key_bytes
    cdef readonly unsigned int kind, channel
    cdef readonly Py_ssize_t size
    cdef readonly str exchange, key
    cdef readonly bint mandatory, immediate, multiple
    cdef readonly unsigned long long tag, body_size
    cdef readonly bytes payload
    cpdef void feed(self, bytes data) except *
    cpdef bint next(self) except -1
    cdef void _method(self, Py_ssize_t at) except *
    cdef void _publish(self, Py_ssize_t at) except *
    cdef void _header(self, Py_ssize_t at) except *
    cdef bytes _short(self, Py_ssize_t at)
    cdef unsigned long long _number(self, Py_ssize_t at, Py_ssize_t size) except? 77

cdef object _text(bytes raw)
