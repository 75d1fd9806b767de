cdef unsigned int _PUT, _NORMAL, _PERSISTENT
cdef Py_ssize_t _SIZE, _BATCH_MAX, _HEAD, _BODY_AT, _HEADS_MAX
cdef dict _heads

cpdef tuple plain_head(Py_ssize_t size)

cpdef object bodies_of(list messages, type kind, str queue, Py_ssize_t size_max)
cpdef object alike_bodies(list messages, type kind, str queue, Py_ssize_t size_max)
cdef bint _only_a_body(object message, str queue) except -1
cdef bint _alone(object message, str queue) except -1

cdef class Batch:
    cdef readonly Py_ssize_t count, length
    cdef readonly bytes data
    cdef object _head
    cdef unsigned char[::1] _b8
    cdef unsigned short[::1] _b16
    cdef unsigned int[::1] _b32
    cdef unsigned long long[::1] _b64
    cpdef Py_ssize_t take(self, unsigned int queue, list messages, Py_ssize_t start,
                          Py_ssize_t room, unsigned int priority=*, unsigned int flags=*,
                          bytes pattern=*) except -1
    cdef bytes _frame(self, unsigned int queue, unsigned int priority, unsigned int flags,
                      Py_ssize_t own, Py_ssize_t size, unsigned int crc, Py_ssize_t offset)

cpdef list id_texts(str prefix, unsigned long long first, Py_ssize_t count)
