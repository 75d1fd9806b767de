cdef unsigned int _MAGIC, _NONE, _VERSION, _LIVE, _STATES

cdef class PoolRows:
    cdef readonly Py_ssize_t parts
    cdef unsigned int _known
    cdef const unsigned char[::1] _bytes
    cdef const unsigned int[::1] _words
    cdef unsigned long long[::1] _expiry, _group, _lsn, _qpool, _sequence, _size, _time, _trace
    cdef unsigned int[::1] _correlation, _crc, _flags, _id, _length, _location, _next, _number
    cdef unsigned int[::1] _offset, _pid, _record, _submitted, _uid, _until
    cdef unsigned short[::1] _origin, _queue
    cdef unsigned char[::1] _attempts, _file, _grade, _retries
    cdef long long[::1] _row
    cpdef Py_ssize_t take(self, bytes data, unsigned int file, unsigned int first, Py_ssize_t row,
                          Py_ssize_t part) except -2
    cdef int _message(self, Py_ssize_t at, Py_ssize_t row) except -1
    cdef int _place(self, Py_ssize_t at, Py_ssize_t part, Py_ssize_t row) except -1
    cdef unsigned long long _long(self, Py_ssize_t at) except? 0
