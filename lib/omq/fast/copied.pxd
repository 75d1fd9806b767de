# Bytes of a buffer copied, without a memoryview and its slice in between; and what will be wanted
# soon, brought nearer.

cdef extern from *:
    """
    #include <string.h>
    #if defined(__GNUC__)
    #define OMQ_AHEAD(where) __builtin_prefetch(where, 1)
    #else
    #define OMQ_AHEAD(where) (void)(where)
    #endif
    """
    void OMQ_AHEAD(const void *where) nogil
    void *memcpy(void *to, const void *data, size_t size) nogil


cdef inline bytes start_of(const unsigned char[::1] data, Py_ssize_t size):
    """The first `size` of them, as an object."""
    if not 0 < size <= data.shape[0]:
        raise IndexError(size)
    return (<const char *>&data[0])[:size]


cdef inline int copy(unsigned char[::1] to, Py_ssize_t at, const unsigned char[::1] data,
                     Py_ssize_t begin, Py_ssize_t size) except -1:
    """`size` of them from `begin` on, to `at`."""
    if (at < 0 or begin < 0 or size <= 0 or size > to.shape[0] - at
            or size > data.shape[0] - begin):
        raise IndexError(begin)
    memcpy(&to[0] + at, &data[0] + begin, size)
    return 0


cdef inline void soon(const unsigned int[::1] column, Py_ssize_t at) noexcept:
    """This number will be wanted soon. Nothing depends on it."""
    if 0 <= at < column.shape[0]:
        OMQ_AHEAD(&column[0] + at)


cdef inline void soon_long(const unsigned long long[::1] column, Py_ssize_t at) noexcept:
    """The same of longer numbers."""
    if 0 <= at < column.shape[0]:
        OMQ_AHEAD(&column[0] + at)
