cdef unsigned int _MAGIC, _VERSION, _TYPE
cdef int _UNSENT, _WAITING, _WOKEN, _ANSWERED, _DONE

cdef class Asking:
    cdef int _queue, _semaphore
    cdef unsigned long long _epoch
    cdef public object marks
    cdef public bint waits
    cdef readonly bint sends
    cdef readonly unsigned int count, lost
    cdef readonly unsigned long long qpool, lsn
    cdef bytearray _message
    cdef object _reply
    cdef unsigned char[::1] _b8
    cdef unsigned short[::1] _b16, _r16
    cdef unsigned int[::1] _b32, _r32
    cdef unsigned long long[::1] _b64, _r64
    cdef long long[::1] _q64
