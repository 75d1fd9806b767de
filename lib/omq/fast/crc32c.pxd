# CRC-32C by the processor's own instruction, without Python in between: for records that are many
# and short. Where there is none, `has_crc32c` says so, and nobody asks for a sum.

cdef extern from *:
    """
    #include <string.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static unsigned int omq_crc32c(unsigned int after, const unsigned char *data, size_t size) {
        unsigned long long crc = ~after, word;
        unsigned int rest;
        for (; size >= 8; data += 8, size -= 8) {
            memcpy(&word, data, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        for (rest = (unsigned int)crc; size; data++, size--)
            rest = __builtin_ia32_crc32qi(rest, *data);
        return ~rest;
    }
    static int omq_has_crc32c(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2") != 0;
    }
    #else
    static unsigned int omq_crc32c(unsigned int after, const unsigned char *data, size_t size) {
        return 0;
    }
    static int omq_has_crc32c(void) { return 0; }
    #endif
    """
    unsigned int omq_crc32c(unsigned int after, const unsigned char *data, size_t size) nogil
    bint omq_has_crc32c() nogil


cdef inline unsigned int crc32c(const unsigned char[::1] data, Py_ssize_t begin,
                                Py_ssize_t end) noexcept:
    """Of these bytes, which the caller knows to be there."""
    return omq_crc32c(0, &data[0] + begin, end - begin)


cdef inline unsigned int crc32c_after(unsigned int crc, bytes data) noexcept:
    """Of all of it, continued from the sum of what precedes it (0: nothing does)."""
    return omq_crc32c(crc, <const unsigned char *>data, len(data))


cdef inline bint has_crc32c() noexcept:
    return omq_has_crc32c()
