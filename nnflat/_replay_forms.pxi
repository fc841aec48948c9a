# What operands, arguments and results are to Python. (Part of _replay.pyx.)

cdef class Form:
    """Dtype, shape, strides and kind of an operand; for a static, the value itself."""

    cdef int kind
    cdef int nd
    cdef bint aligned
    cdef bint contiguous
    cdef Size* sizes                # shape, then strides
    cdef Size low                   # bytes from the first element to the lowest
    cdef Size high                  # and to the end of the highest
    cdef readonly Size nbytes
    cdef readonly object dtype
    cdef readonly object value
    cdef readonly tuple shape
    cdef readonly tuple strides

    def __cinit__(self, str kind, dtype=None, tuple shape=(), strides=None, *, bint aligned=True, value=None):
        self.kind = KINDS[kind]
        self.dtype, self.shape, self.value, self.aligned = dtype, shape, value, aligned
        if dtype is None:
            return
        self.nd = len(shape)
        natural = np.empty(0, dtype).strides if not shape else c_strides(shape, dtype.itemsize)
        self.strides = natural[:self.nd] if strides is None else strides
        self.contiguous = not shape or self.strides == natural
        self.sizes = <Size*>PyMem_RawMalloc(max(2 * self.nd, 1) * sizeof(Size))
        if not self.sizes:
            raise MemoryError
        self.nbytes = self.high = dtype.itemsize
        for i in range(self.nd):
            self.sizes[i], self.sizes[self.nd + i] = shape[i], self.strides[i]
            self.nbytes *= shape[i]
            if self.strides[i] < 0:
                self.low += (shape[i] - 1) * self.strides[i]
            else:
                self.high += (shape[i] - 1) * self.strides[i]

    def __dealloc__(self):
        PyMem_RawFree(self.sizes)

    @property
    def name(self):
        return next(name for name, kind in KINDS.items() if kind == self.kind)

    def describe(self) -> str:
        """Say what the form asks for."""
        if self.kind == ARRAY:
            order = "" if self.contiguous else f", strides {self.strides}"
            return f"an array of shape {self.shape}, dtype {self.dtype}{order}{'' if self.aligned else ', unaligned'}"
        return repr(self.value) if self.kind == STATIC else self.value.__name__

    cdef inline bint accepts(self, object value) except -1:
        if self.kind == ARRAY:
            return type(value) is cnp.ndarray and self.fits(<cnp.ndarray>value)
        return self.accepts_other(value)

    cdef bint accepts_other(self, object value) except -1:
        if self.kind == NUMBER:
            return type(value) is self.value
        if self.kind == SCALAR:
            return type(value) is self.value and value.dtype == self.dtype
        return value is self.value or (type(value) is type(self.value) and value == self.value)

    cdef inline bint fits(self, cnp.ndarray array) noexcept:
        cdef Size* dims = array_dims(array)
        cdef Size* strides = array_strides(array)
        cdef int i
        if array_descr(array) != <Descr*>self.dtype and not self.same_dtype(array):
            return False
        if cnp.PyArray_NDIM(array) != self.nd or array_aligned(array) != self.aligned:
            return False
        for i in range(self.nd):
            if dims[i] != self.sizes[i] or strides[i] != self.sizes[self.nd + i]:
                return False
        return True

    cdef inline bint overlaps(self, object value, Form form, cnp.ndarray other) noexcept:
        """Whether the memory of `value`, which has this form, may meet that of `other`, which has `form`."""
        if self.kind != ARRAY:
            return False
        cdef char* data = <char*>cnp.PyArray_DATA(<cnp.ndarray>value)
        cdef char* start = <char*>cnp.PyArray_DATA(other)
        return data + self.low < start + form.high and start + form.low < data + self.high

    cdef bint same_dtype(self, cnp.ndarray array) noexcept:
        return array.dtype == self.dtype

    cdef cnp.ndarray over(self, char* data, bint writeable):
        """An array over memory that somebody else keeps."""
        Py_INCREF(self.dtype)
        return PyArray_NewFromDescr(<TypeObject*>cnp.ndarray, <Descr*>self.dtype, self.nd, self.sizes,
                                    self.sizes + self.nd, data, cnp.NPY_ARRAY_WRITEABLE if writeable else 0, NULL)

    cdef cnp.ndarray fresh(self):
        Py_INCREF(self.dtype)
        return PyArray_NewFromDescr(<TypeObject*>cnp.ndarray, <Descr*>self.dtype, self.nd, self.sizes,
                                    NULL if self.contiguous else self.sizes + self.nd, NULL, 0, NULL)

    cdef object read(self, char* data):
        """What Python sees of the operand in memory: an array that shares it, or a scalar or number."""
        array = self.over(data, False)
        if self.kind == ARRAY:
            return array
        return array.item() if self.kind == NUMBER else array[()]


cdef tuple c_strides(tuple shape, Size itemsize):
    strides = []
    for size in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(size, 1)
    return tuple(reversed(strides))


cdef char* store_number(Space* space, Size i, object value, Form form) except NULL:
    cdef char* cell = space.numbers + i * CELL
    cdef Py_complex pair
    cdef int overflow = 0
    if form.kind == SCALAR:
        scalar_to_memory(value, cell)
    elif form.value is float:
        (<double*>cell)[0] = PyFloat_AS_DOUBLE(value)
    elif form.value is complex:
        pair = PyComplex_AsCComplex(value)
        memcpy(cell, &pair, 16)
    elif form.value is bool:
        cell[0] = value is True
    else:
        (<long long*>cell)[0] = value
    return cell


cdef int check_out(Form form, object out) except -1:
    if type(out) is not cnp.ndarray:
        raise TypeError(f"out needs an array of shape {form.shape} and dtype {form.dtype}; got {type(out).__name__}")
    if out.shape != form.shape or out.dtype != form.dtype:
        raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}; "
                         f"the function gives {form.shape} and {form.dtype}")
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    return 0
