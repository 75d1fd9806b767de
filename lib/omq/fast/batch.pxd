cdef unsigned int _PUT, _NORMAL, _PERSISTENT, _GROUPED
cdef Py_ssize_t _SIZE, _BATCH_MAX, _HEAD, _BODY_AT, _GROUP_AT, _NUMBER_AT, _HEADS_MAX, _ID
cdef Py_ssize_t _MARK, _SHORT
cdef unsigned int _LAST
cdef bint _OWN_SUM
cdef bytes _PLAIN
cdef dict _heads

cpdef tuple plain_head(Py_ssize_t size)

cpdef object bodies_of(list messages, type kind, str queue, Py_ssize_t size_max)
cpdef object alike_bodies(list messages, type kind, str queue, Py_ssize_t size_max)
cpdef object marks_of(list messages)
cpdef bytes group_mark(bytes group, unsigned int number)
cdef unsigned int _sum(bytes data, unsigned int crc) except? 0
cdef bint _only_a_body(object message, str queue) except -1
cdef bint _at_once(object message, str queue) except -1

cdef class Marks:
    cdef unsigned char[::1] _s8
    cdef unsigned int[::1] _s32
    cdef unsigned long long[::1] _s64
    cdef int note(self, Py_ssize_t i, bytes group, unsigned int number) except -1
    cdef bint has(self, Py_ssize_t i) except -1

cdef class Descriptors:
    cdef unsigned char[::1] _m8
    cdef unsigned int[::1] _m32
    cdef unsigned long long[::1] _m64
    cdef Py_ssize_t _size
    cdef unsigned int crc
    cdef bytes of(self, unsigned long long size, Marks marks, Py_ssize_t i)

cdef class Heads:
    cdef object _head
    cdef unsigned char[::1] _b8
    cdef unsigned short[::1] _b16
    cdef unsigned int[::1] _b32
    cdef unsigned long long[::1] _b64
    cdef long long[::1] _q64
    cdef bytes plain(self, unsigned int queue, unsigned int priority, unsigned int flags,
                     unsigned long long size, unsigned int length, unsigned int crc,
                     unsigned int offset)
    cdef bytes full(self, unsigned int queue, unsigned int priority, unsigned int flags,
                    unsigned long long size, unsigned int length, unsigned int crc,
                    unsigned int offset, unsigned int parts, unsigned long long key,
                    unsigned long long correlation, long long expiry)

cdef Heads _heads_of_frames

cpdef bytes head_of(object encoded, unsigned int offset)
cpdef tuple part_bytes(list rows, list new)

cdef class Batch:
    cdef readonly Py_ssize_t count, length
    cdef readonly bytes data
    cpdef Py_ssize_t take(self, unsigned int queue, list messages, Py_ssize_t start,
                          Py_ssize_t room, unsigned int priority=*, unsigned int flags=*,
                          bytes pattern=*, Marks marks=*) except -1

cpdef tuple headed(bytes pattern, Py_ssize_t size, bytes mark)

cpdef list id_texts(str prefix, unsigned long long first, Py_ssize_t count)
