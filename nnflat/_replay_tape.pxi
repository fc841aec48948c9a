# How a tape of operations runs, without the GIL. (Part of _replay.pyx.)

cdef int run(const Code* code, Space* space, bint careful) except -1 nogil:
    cdef Size i = 0
    cdef const Op* op
    while i < code.nops:
        op = code.ops + i
        if op.chain > 1:
            run_chain(op, space, i, careful)
            i += op.chain
            continue
        run_one(op, space, i, careful)
        i += 1
    return 0


cdef int run_one(const Op* op, Space* space, Size i, bint careful) except -1 nogil:
    cdef char* args[MAX_ARGS]
    if op.clears and not careful:
        space.flags |= pending()
    address(op, space.bases, args)
    if op.action == LOOP:
        if op.first:
            nest_first(op, args)
        elif op.ndim:
            nest(op, args)
        else:
            op.loop(args, op.dims, op.strides, op.data)
    elif op.action == ITERATE:
        if iterate(op, space.iterators[i], args):
            with gil:
                raise MemoryError("NumPy's iterator found no memory for its buffers")
    elif op.action == TAKE:
        check_index(op, args, take(op, args))
    elif op.action == REPEAT:
        repeat(op, space, space.nested[i], args, careful)
    else:
        with gil:
            (<Call>op.helper).invoke(args)
        forget()
    if careful:
        collect(space, i)
    return 0


cdef int check_index(const Op* op, char** args, Size bad) except -1 nogil:
    if bad >= 0:
        with gil:
            row = (<Size*>(args[1] + bad * op.strides[1]))[0]
            raise IndexError(f"index {row} is out of bounds for axis 0 with size {op.dims[1]}")
    return 0


cdef int repeat(const Op* op, Space* space, Space* inner, char** args, bint careful) except -1 nogil:
    """Run a tape once a row, its buffers moving by `strides`; a carry goes from each row to the next.

    dims: rows, operands that move, carries. After those operands come four for each carry: where it starts,
    two places to keep it, where it ends. `outer` has the buffers inside: of operands, then in and out of carries.
    """
    cdef Size row, k, last
    cdef Size rows = op.dims[0], moving = op.dims[1], carries = op.dims[2]
    cdef Size start = 0, stop = rows
    cdef char** carry
    cdef const Code* code = (<Repeat>op.helper).code
    if space.stop >= 0:
        start, stop = space.start, space.stop
    if code.plain and not carries:
        repeat_in_blocks(op, code, inner, args, start, stop, careful)
        space.flags |= inner.flags
        inner.flags = 0
        return 0
    last = rows - 1
    for row in range(start, stop):
        for k in range(moving):
            inner.bases[op.outer[k]] = args[k] + row * op.strides[k]
        for k in range(carries):
            carry = args + moving + 4 * k
            inner.bases[op.outer[moving + 2 * k]] = carry[0] if row == 0 else carry[1 + (row - 1) % 2]
            inner.bases[op.outer[moving + 2 * k + 1]] = carry[3] if row == last else carry[1 + row % 2]
        run(code, inner, careful)
    space.flags |= inner.flags
    inner.flags = 0
    return 0


cdef void repeat_in_blocks(const Op* op, const Code* code, Space* inner, char** args, Size start, Size stop,
                           bint careful) noexcept nogil:
    """Run a block of rows operation by operation: each loop stays warm, and flags are sampled once a block."""
    cdef Size row = start, count, k
    for k in range(op.dims[1]):
        inner.steps[op.outer[k]] = op.strides[k]
    while row < stop:
        count = min(inner.width, stop - row)
        for k in range(op.dims[1]):
            inner.bases[op.outer[k]] = args[k] + row * op.strides[k]
        for k in range(code.nops):
            run_rows(code.ops + k, inner, k, count, careful)
        row += count


cdef void run_rows(const Op* op, Space* space, Size i, Size count, bint careful) noexcept nogil:
    cdef char* first[MAX_ARGS]
    cdef char* args[MAX_ARGS]
    cdef Size steps[MAX_ARGS]
    cdef Size row
    cdef int k
    if op.clears and not careful:
        space.flags |= pending()
    address(op, space.bases, first)
    for k in range(op.nargs):
        steps[k] = space.steps[op.buffers[k]]
    for row in range(count):
        for k in range(op.nargs):
            args[k] = first[k] + row * steps[k]
        if op.first:
            nest_first(op, args)
        elif op.ndim:
            nest(op, args)
        else:
            op.loop(args, op.dims, op.strides, op.data)
    if careful:
        collect(space, i)
