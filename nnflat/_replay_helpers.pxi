# What some operations need beside their loop: a call, an iterator, a tape inside. (Part of _replay.pyx.)

cdef class Call:
    """NumPy itself: `function(*inputs)` gives a tuple of outputs, which are copied to their windows."""

    cdef object function
    cdef tuple inputs
    cdef tuple outputs

    def __cinit__(self, function, tuple inputs, tuple outputs):
        self.function, self.inputs, self.outputs = function, inputs, outputs

    cdef int invoke(self, char** args) except -1:
        cdef Form form
        cdef Size k = 0
        values = []
        for form in self.inputs:
            values.append(form.read(args[k]))
            k += 1
        results = self.function(*values)
        for form, result in zip(self.outputs, results, strict=True):
            self.store(form, result, args[k])
            k += 1
        return 0

    cdef int store(self, Form form, object result, char* data) except -1:
        value = np.asarray(result) if form.kind != NUMBER else np.asarray(result, form.dtype)
        if value.shape != form.shape or value.dtype != form.dtype:
            raise ValueError(f"a call gave shape {value.shape} and dtype {value.dtype} where the tape has "
                             f"{form.shape} and {form.dtype}: its result depends on values and cannot be traced")
        copy_into(form.over(data, True), value)
        return 0


cdef class Iterator:
    """NumPy's iterator over stand-ins of the operands; each Space works on a copy of it."""

    cdef NpyIter* iterator
    cdef object owners

    def __cinit__(self, list arrays, Size flags, list op_flags, list dtypes, op_axes=None, str order="K"):
        cdef ArrayObject* operands[MAX_ARGS]
        cdef Descr* descrs[MAX_ARGS]
        cdef cnp.npy_uint32 each[MAX_ARGS]
        cdef int axes[2][MAX_DIMS]
        cdef int* axes_of[2]
        cdef int ndim = -1
        self.owners = (arrays, dtypes)
        for k in range(len(arrays)):
            operands[k], each[k] = <ArrayObject*>arrays[k], op_flags[k]
            descrs[k] = <Descr*>dtypes[k]
        if op_axes is not None:
            ndim = len(op_axes[0])
            for k in range(2):
                axes_of[k] = axes[k]
                for i in range(ndim):
                    axes[k][i] = op_axes[k][i]
        self.iterator = NpyIter_AdvancedNew(
            len(arrays), operands, flags, cnp.NPY_KEEPORDER if order == "K" else cnp.NPY_CORDER,
            cnp.NPY_UNSAFE_CASTING, each, descrs, ndim, axes_of if ndim >= 0 else NULL, NULL, 0)

    def __dealloc__(self):
        if self.iterator:
            NpyIter_Deallocate(self.iterator)


cdef class Repeat:
    """The tape inside a vmap or scan."""

    cdef Replay replay
    cdef const Code* code

    def __cinit__(self, Replay replay):
        self.replay, self.code = replay, &replay.code
