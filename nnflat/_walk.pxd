from cpython.object cimport PyObject

cdef struct Link

cdef class Watch:
    cdef Link* link
    cdef Py_ssize_t n
    cdef bint asks  # whether a container has to be asked for its children
    cdef list links

    cpdef Py_ssize_t changed(self) except -2
    cdef bint holds(self, Py_ssize_t i, dict given) except -1
