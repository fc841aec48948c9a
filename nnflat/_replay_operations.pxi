# How one operation runs, without the GIL. (Part of _replay.pyx.)

cdef inline int pending() noexcept nogil:
    return fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID)


cdef inline void forget() noexcept nogil:
    feclearexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID)


cdef inline void address(const Op* op, char** bases, char** args) noexcept nogil:
    cdef int k
    for k in range(op.nargs):
        args[k] = bases[op.buffers[k]] + op.offsets[k]


cdef void nest(const Op* op, char** args) noexcept nogil:
    """Run the inner loop over all outer axes. Loops may move `args`, so each gets its own."""
    cdef char* at[MAX_ARGS]
    cdef Size index[MAX_DIMS]
    cdef int k, axis
    cdef Size i
    if op.ndim == 1:
        for i in range(op.outer[0]):
            for k in range(op.nargs):
                at[k] = args[k] + i * op.steps[k]
            op.loop(at, op.dims, op.strides, op.data)
        return
    memset(index, 0, op.ndim * sizeof(Size))
    while True:
        memcpy(at, args, op.nargs * sizeof(char*))
        op.loop(at, op.dims, op.strides, op.data)
        if not advance(op, args, index):
            return


cdef inline bint advance(const Op* op, char** args, Size* index) noexcept nogil:
    """Move to the next position of the outer axes, the last fastest; False after the last one."""
    cdef int k, axis = op.ndim - 1
    cdef const Size* step
    while axis >= 0:
        step = op.steps + axis * op.nargs
        index[axis] += 1
        if index[axis] < op.outer[axis]:
            for k in range(op.nargs):
                args[k] += step[k]
            return True
        for k in range(op.nargs):
            args[k] -= step[k] * (op.outer[axis] - 1)
        index[axis] = 0
        axis -= 1
    return False


cdef void nest_first(const Op* op, char** args) noexcept nogil:
    """As `nest`, for a reduction (out, in, out) whose first visits are copied already."""
    cdef char* at[3]
    cdef Size index[MAX_DIMS]
    cdef Size count
    cdef int axis
    cdef bint first
    memset(index, 0, op.ndim * sizeof(Size))
    while True:
        first = True
        for axis in range(op.ndim):
            if op.steps[axis * 3] == 0 and index[axis]:
                first = False
        count = op.dims[0]
        memcpy(at, args, sizeof(at))
        if first and op.strides[0] == 0:
            count -= 1
            at[1] += op.strides[1]
        elif first:
            count = 0
        if count > 0:
            op.loop(at, &count, op.strides, op.data)
        if not op.ndim or not advance(op, args, index):
            return


cdef int iterate(const Op* op, NpyIter* iterator, char** args) noexcept nogil:
    """Replay NumPy's iterator over new memory. A reduction has operands (out, in)."""
    cdef char* message = NULL
    cdef char* at[MAX_ARGS]
    cdef Size strides[MAX_ARGS]
    cdef Size count
    cdef IterNext next
    cdef char** pointers
    cdef Size* moves
    cdef Size* size
    cdef int nop = op.nargs
    if not NpyIter_ResetBasePointers(iterator, args, &message):
        return -1
    next = NpyIter_GetIterNext(iterator, &message)
    pointers = NpyIter_GetDataPtrArray(iterator)
    moves = NpyIter_GetInnerStrideArray(iterator)
    size = NpyIter_GetInnerLoopSizePtr(iterator)
    while True:
        memcpy(at, pointers, nop * sizeof(char*))
        memcpy(strides, moves, nop * sizeof(Size))
        count = size[0]
        if op.ndims:                            # a reduction
            if op.first and NpyIter_IsFirstVisit(iterator, 0):
                if strides[0] == 0:
                    count -= 1
                    at[1] += strides[1]
                else:
                    count = 0
            at[2] = at[0]
            strides[2] = strides[0]
        if count > 0:
            op.loop(at, &count, strides, op.data)
        if not next(iterator):
            return 0


cdef Size take(const Op* op, char** args) noexcept nogil:
    """Copy rows (source, index, target); return -1, or where the first index out of range is.

    dims: indices, rows of the source, bytes of a row; strides: of source rows, of the index, of target rows.
    """
    cdef Size i, row
    for i in range(op.dims[0]):
        row = (<Size*>(args[1] + i * op.strides[1]))[0]
        if row < 0:
            row += op.dims[1]
        if row < 0 or row >= op.dims[1]:
            return i
        memcpy(args[2] + i * op.strides[2], args[0] + row * op.strides[0], op.dims[2])
    return -1


cdef void run_chain(const Op* ops, Space* space, Size first, bint careful) noexcept nogil:
    """Run a chain of elementwise operations block by block, so that a block stays in the cache."""
    cdef char* args[MAX_ARGS]
    cdef const Op* op
    cdef Size done = 0, count
    cdef Size total = ops.dims[0]
    cdef int i, k
    while done < total:
        count = min(<Size>BLOCK, total - done)
        for i in range(ops.chain):
            op = ops + i
            if op.clears and not careful:
                space.flags |= pending()
            for k in range(op.nargs):
                args[k] = space.bases[op.buffers[k]] + op.offsets[k]
                if not op.local >> k & 1:
                    args[k] += done * op.strides[k]
            op.loop(args, &count, op.strides, op.data)
            if careful:
                collect(space, first + i)
        done += count


cdef inline void collect(Space* space, Size i) noexcept nogil:
    """Note the flags that operation i has raised, and clear them."""
    cdef int flags = pending()
    if flags:
        space.raised[i] |= flags
        space.flags |= flags
        forget()
