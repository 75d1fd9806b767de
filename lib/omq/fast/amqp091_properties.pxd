cdef tuple _NAMES, _ONE
cdef Py_ssize_t _COUNT, _TABLE, _MODE, _PRIORITY, _TIME
cdef long long _TIME_MAX
cdef unsigned int _CORRELATION, _REPLY, _MESSAGE, _EXPIRATION
cdef unsigned int _SAID_MODE, _SAID_PRIORITY, _PRIORITY_MAX
cdef bytes _HEAD

cpdef dict read(bytes raw)
cpdef tuple written(dict found)
cpdef bytes short(str text)
cpdef bytes head(unsigned long long size, unsigned int mode, unsigned int priority,
                 unsigned int flags, bytes first, bytes last, str correlation, str reply,
                 str message, str expiration=*)
