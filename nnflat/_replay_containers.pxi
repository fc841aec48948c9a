# Dicts, lists and tuples of arguments and results, taken apart and put together. (Part of _replay.pyx.)
#
# A structure is what `structure.py` makes: (class, keys, structures of the children, more) for a container, None for an
# end. Other classes than these three are not followed here: they go the slow way.

cdef list ends_of(tuple structure, PyObject** args, Size nargs):
    """The ends of arguments that have this structure; None where they have another."""
    cdef list ends = []
    cdef tuple parts = <tuple>structure[2]
    cdef Size i
    if len(parts) != nargs:
        return None
    for i in range(nargs):
        if not follow(parts[i], <object>args[i], ends):
            return None
    return ends


cdef bint follow(object structure, object value, list ends) except -1:
    """Add the ends of a value; False where it has another structure."""
    cdef PyObject* key = NULL
    cdef PyObject* child = NULL
    cdef Py_ssize_t place = 0
    cdef Size i
    if structure is None:
        ends.append(value)
        return True
    cls, keys, parts = (<tuple>structure)[0], <tuple>(<tuple>structure)[1], <tuple>(<tuple>structure)[2]
    if type(value) is not cls or (cls is not dict and cls is not tuple and cls is not list) or len(value) != len(keys):
        return False
    for i in range(len(<tuple>parts)):
        if cls is dict:
            PyDict_Next(value, &place, &key, &child)
            if <object>key is not (<tuple>keys)[i] and <object>key != (<tuple>keys)[i]:
                return False
            if not follow((<tuple>parts)[i], <object>child, ends):
                return False
        elif not follow((<tuple>parts)[i], (<tuple>value)[i] if cls is tuple else (<list>value)[i], ends):
            return False
    return True


cdef object assemble(object structure, list ends, Size* place):
    """Make what has this structure, with the next of the ends at each end."""
    if structure is None:
        place[0] += 1
        return ends[place[0] - 1]
    cls, keys, parts = <tuple>structure[0:3]
    children = [assemble(part, ends, place) for part in parts]
    if cls is dict:
        return dict(zip(keys, children, strict=True))
    return children if cls is list else tuple(children)


def is_plain(structure) -> bool:
    """Whether all containers of a structure are dicts, lists and tuples."""
    return structure is None or (structure[0] in (dict, list, tuple) and all([is_plain(part) for part in structure[2]]))
