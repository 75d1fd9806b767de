cdef Py_ssize_t _HIGHEST, _ROOM

cdef class Lane:
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t _room
    cdef list _items
    cdef bytearray _said
    cdef unsigned int[::1] _i32
    cdef unsigned long long[::1] _i64
    cpdef int push(self, unsigned int priority, unsigned long long sequence,
                   unsigned int entry) except -1
    cpdef Py_ssize_t entry(self) except -1
    cpdef unsigned long long sequence(self) except? 0
    cpdef int drop(self) except -1
    cpdef object first(self)
    cpdef list items(self)
    cdef object _item(self, Py_ssize_t i)
    cdef bint _goes_before(self, unsigned int below, unsigned long long sequence,
                           Py_ssize_t i) except -1
    cdef int _move(self, Py_ssize_t i, Py_ssize_t to) except -1
    cdef int _put(self, Py_ssize_t at, unsigned int below, unsigned long long sequence,
                  unsigned int entry) except -1
    cdef int _make_room(self, Py_ssize_t count) except -1
