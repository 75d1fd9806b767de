from omq.fast.columns cimport Columns, bits

cdef unsigned int _UNSYNCED
cdef Py_ssize_t _IOV_MAX, _GROUPS, _FILE, _BYTES, _FRAMES, _SYNC_US, _SHIFT, _FEW
cdef long long _US
cdef unsigned long long _TIMED

cdef class Journal:
    cdef object _block, _writer, _view
    cdef Columns _c
    cdef Py_ssize_t _page, _file_bytes
    cdef unsigned char[::1] _b8
    cdef unsigned int[::1] _b32
    cdef unsigned long long[::1] _b64
    cdef int _write(self, unsigned int force) except -1
    cdef Py_ssize_t _room(self, Py_ssize_t offset) except -1
    cdef int _seal(self, Py_ssize_t count, unsigned long long first, Py_ssize_t payload_bytes,
                   Py_ssize_t length, unsigned int flags) except -1
    cdef int _put_down(self, object file, list buffers, Py_ssize_t offset, Py_ssize_t length) except -1
    cdef int _sync(self, object file) except -1
    cdef int _flushed(self, Py_ssize_t count, Py_ssize_t payload_bytes, Py_ssize_t base,
                      long long took) except -1
