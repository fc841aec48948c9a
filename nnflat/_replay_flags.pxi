# Floating-point errors as the caller wants to hear of them. (Part of _replay.pyx.)

cdef enum:
    RAISING = 1 << 20
    DIVIDE = 1
    OVERFLOW = 2
    UNDERFLOW = 4
    INVALID = 8

cdef object ERRSTATE = getattr(np._core.umath, "_extobj_contextvar", None)
cdef object heard_in = None         # the errstate object that `heard` was read from
cdef int heard = 0


cdef int listen() except -1:
    """The flags that the errstate of the caller does not ignore, and RAISING where one of them raises."""
    global heard_in, heard
    cdef PyObject* state = NULL
    if ERRSTATE is None:
        return read_errstate()
    PyContextVar_Get(ERRSTATE, NULL, &state)
    if state != <PyObject*>heard_in:
        heard_in, heard = <object>state, read_errstate()
    Py_DECREF(state)
    return heard


cdef int read_errstate() except -1:
    cdef int flags = 0
    modes = np.geterr()
    if "raise" in modes.values():
        flags |= RAISING
    if modes["divide"] != "ignore":
        flags |= FE_DIVBYZERO
    if modes["over"] != "ignore":
        flags |= FE_OVERFLOW
    if modes["under"] != "ignore":
        flags |= FE_UNDERFLOW
    if modes["invalid"] != "ignore":
        flags |= FE_INVALID
    return flags


cdef int give(str name, int flags) except -1:
    cdef int numpys = 0
    if flags & FE_DIVBYZERO:
        numpys |= DIVIDE
    if flags & FE_OVERFLOW:
        numpys |= OVERFLOW
    if flags & FE_UNDERFLOW:
        numpys |= UNDERFLOW
    if flags & FE_INVALID:
        numpys |= INVALID
    text = name.encode()
    PyUFunc_GiveFloatingpointErrors(text, numpys)
    return 0
