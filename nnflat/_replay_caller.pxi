# The quick way into replays. (Part of _replay.pyx.)

cdef class Caller:
    """The quick way into the replays of a function, for arguments that are leaves themselves.

    It is called by vectorcall: no tuple and no dict of arguments is made where a replay accepts them.
    """

    cdef vectorcallfunc vectorcall
    cdef public list replays        # most recently used first
    cdef public object fn

    def __cinit__(self, *args, **kwargs):
        self.vectorcall = <vectorcallfunc>call_quickly
        self.replays = []

    def __call__(self, *args, out=None):
        return self.call_slowly(args, out)


cdef int traces = 0             # that are being made now, by any thread


def tracing_depth(int change):
    """Count a trace that begins (1) or ends (-1): a program that it calls is traced, too, and not replayed."""
    global traces
    traces += change


cdef object call_quickly(object callable, PyObject** args, size_t nargsf, PyObject* names):
    cdef Caller self = <Caller>callable
    cdef Size nargs = PyVectorcall_NARGS(nargsf)
    cdef object out = None
    cdef Replay replay
    cdef list replays = self.replays
    cdef list ends
    cdef tuple outs
    cdef PyObject** leaves
    cdef Size i, nleaves
    if names:
        out = out_of(args + nargs, <tuple>names)
    for i in range(0 if traces else len(replays)):
        if i >= len(replays):           # another thread has dropped a replay meanwhile
            break
        replay = <Replay>replays[i]
        leaves, nleaves = args, nargs
        if replay.structure is not None:
            ends = ends_of(replay.structure, args, nargs)
            if ends is None:
                continue
            leaves, nleaves = items_of_list(ends), len(ends)
        if replay.accepts(leaves, nleaves):
            if i:
                bring_forward(replays, replay)
            if out is None:
                return replay.finish(replay.replay(leaves, None))
            outs = replay.outs_of(out)
            if outs is None:
                break
            replay.replay(leaves, outs)
            return out
    return self.call_slowly(tuple([<object>args[i] for i in range(nargs)]), out)


cdef int bring_forward(list replays, Replay replay) except -1:
    """Make a replay the most recent one."""
    if replay in replays:
        replays.remove(replay)
        replays.insert(0, replay)
    return 0


cdef object out_of(PyObject** values, tuple names):
    if len(names) != 1 or names[0] != "out":
        raise TypeError(f"a compiled function takes positional arguments and out=; got {names[0]}=")
    return <object>values[0]


cdef PyObject** items_of(tuple items) noexcept:
    return (<PyTupleObject*>items).ob_item


cdef PyObject** items_of_list(list items) noexcept:
    return (<PyListObject*>items).ob_item


def vectorcalled(cls):
    """Let calls of instances of `cls`, a kind of Caller, go by vectorcall (heap types do not inherit it)."""
    cdef Caller probe = Caller.__new__(Caller)
    cdef PyTypeObject* kind = <PyTypeObject*>cls
    kind.tp_vectorcall_offset = <char*>&probe.vectorcall - <char*><PyObject*>probe
    kind.tp_call = PyVectorcall_Call
    kind.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL
    return cls
