# Bytes of a buffer as an object, without a memoryview and its slice in between.

cdef inline bytes start_of(const unsigned char[::1] data, Py_ssize_t size):
    """The first `size` of them."""
    if not 0 < size <= data.shape[0]:
        raise IndexError(size)
    return (<const char *>&data[0])[:size]
