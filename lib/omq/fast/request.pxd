cdef int _MAGIC, _VERSION

cdef class Request:
    cdef object _raw
    cdef unsigned char[::1] _b8
    cdef unsigned short[::1] _b16
    cdef unsigned int[::1] _b32
    cdef unsigned long long[::1] _b64
    cdef bytes token
    cdef unsigned int operation, priority, flags, queue, count, client, length, crc, parts
    cdef unsigned long long sequence, size, correlation, want
    cdef long long argument, expiry
    cdef bint read(self, bytes raw) except -1
