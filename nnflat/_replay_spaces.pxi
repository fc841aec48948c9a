# The memory of one run. (Part of _replay.pyx.)

cdef class Block:
    """Owner of one Space. It holds no Replay: the pool of a Replay holds it."""

    cdef Space* space

    def __cinit__(self, Replay replay):
        self.space = make_space(replay, 1)

    def __dealloc__(self):
        if self.space:
            free_space(self.space)


cdef inline char* aligned(char* memory) noexcept nogil:
    return <char*>((<uintptr_t>memory + ALIGNMENT - 1) & ~<uintptr_t>(ALIGNMENT - 1))


cdef inline Size rounded(Size nbytes) noexcept nogil:
    return (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


cdef Size rows_at_once(Replay replay) noexcept:
    """How many rows of a REPEAT run together, operation by operation."""
    return min(<Size>ROWS, max(<Size>1, CACHE // max(<Size>1, rounded(replay.nbytes)))) if replay.code.plain else 1


cdef Space* make_space(Replay replay, Size width) except NULL:
    cdef Code* code = &replay.code
    cdef Space* space = <Space*>PyMem_RawCalloc(1, sizeof(Space))
    cdef Replay repeated
    cdef Size i
    if not space:
        raise MemoryError
    space.width = width
    space.bases = <char**>PyMem_RawCalloc(code.nbuffers + 1, sizeof(char*))
    space.steps = <Size*>PyMem_RawCalloc(code.nbuffers + 1, sizeof(Size))
    space.iterators = <NpyIter**>PyMem_RawCalloc(code.nops + 1, sizeof(NpyIter*))
    space.nested = <Space**>PyMem_RawCalloc(code.nops + 1, sizeof(Space*))
    space.raised = <int*>PyMem_RawCalloc(code.nops + 1, sizeof(int))
    space.memory = <char*>PyMem_RawMalloc(width * rounded(replay.nbytes) + ALIGNMENT)
    space.numbers = <char*>PyMem_RawMalloc((len(replay.forms) + 1) * CELL)
    space.stop = -1
    space.nops = code.nops
    if not (space.bases and space.steps and space.iterators and space.nested and space.raised and space.memory
            and space.numbers):
        free_space(space)
        raise MemoryError
    try:
        for i in range(code.nops):
            if code.ops[i].action == ITERATE:
                space.iterators[i] = NpyIter_Copy((<Iterator>code.ops[i].helper).iterator)
            elif code.ops[i].action == REPEAT:
                repeated = (<Repeat>code.ops[i].helper).replay
                space.nested[i] = make_space(repeated, rows_at_once(repeated))
    except BaseException:
        free_space(space)
        raise
    for buffer, offset in replay.temporaries:
        space.bases[<Size>buffer] = aligned(space.memory) + <Size>offset
        space.steps[<Size>buffer] = rounded(replay.nbytes)
    for buffer, array in replay.constants:
        space.bases[<Size>buffer] = <char*>cnp.PyArray_DATA(array)
    return space


cdef void free_space(Space* space):
    cdef Size i
    for i in range(space.nops):
        if space.iterators and space.iterators[i]:
            NpyIter_Deallocate(space.iterators[i])
        if space.nested and space.nested[i]:
            free_space(space.nested[i])
    PyMem_RawFree(space.bases)
    PyMem_RawFree(space.steps)
    PyMem_RawFree(space.iterators)
    PyMem_RawFree(space.nested)
    PyMem_RawFree(space.raised)
    PyMem_RawFree(space.memory)
    PyMem_RawFree(space.numbers)
    PyMem_RawFree(space.scratch)
    PyMem_RawFree(space)
