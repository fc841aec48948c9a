"""Examples of every function that the tracer covers, to differentiate; or why it has no derivative.

An example is `(fn, *args)`: fn takes a module first (numpy, or one with the same functions), then the arguments. All
arguments of inexact dtype are differentiated by.
"""

import numpy as np
from numpy.testing import assert_allclose

import nnflat as nf
from nnflat.compile import trace_once
from nnflat.grad import Gradient
from nnflat.verify import same_bits


def differences(fn, x, step=1e-6):
    """Central differences of a real function; of a complex argument du/dx - i du/dy."""
    x = np.asarray(x)
    slopes = np.zeros(x.shape, x.dtype)
    for i in np.ndindex(x.shape):
        for unit in (1, 1j) if x.dtype.kind == "c" else (1,):
            up, down = x.copy(), x.copy()
            up[i] += step * unit
            down[i] -= step * unit
            slope = (fn(up) - fn(down)) / (2 * step)
            slopes[i] += slope if unit == 1 else -1j * slope
    return slopes


def weighted(fn, module=np):
    """Make a real number of a result, with a weight of its own for each element."""

    def total(*args):
        y = fn(*args)
        weights = np.cos(1.7 * np.arange(1, np.size(y) + 1)).reshape(np.shape(y))
        real = module.sum(weights * module.real(y))
        return real + module.sum((1 - weights) * module.imag(y)) if np.iscomplexobj(y) else real

    return total


def is_inexact(x):
    return np.asarray(x).dtype.kind in "fc"


def check(fn, *args, order=2, rtol=1e-6, atol=1e-7):
    """First and second derivatives by every inexact argument; the tape against the rules run eagerly."""
    loss = weighted(fn)
    for k, arg in enumerate(args):
        if not is_inexact(arg):
            continue

        def by(v, k=k):
            return loss(*args[:k], v, *args[k + 1 :])

        gradient = nf.grad(by, allow_unused=True)
        given = gradient(arg)
        assert_allclose(given, differences(by, arg), rtol=rtol, atol=atol)
        assert given.dtype == np.asarray(arg).dtype
        assert same_bits(np.asarray(given), np.asarray(trace_once(gradient.fn, (arg,))))
        if order == 2:
            check_second(gradient, arg)


def check_second(gradient, x):
    """The derivative, along a line, of the gradient along another one."""
    ways = [np.cos(np.arange(k, k + np.size(x))).reshape(np.shape(x)) for k in (1, 4)]
    if np.asarray(x).dtype.kind == "c":
        ways = [way * (1 + 0.5j) for way in ways]

    def slope(v):
        return np.sum(np.real(gradient(v) * ways[0]))

    expected = (slope(x + 1e-6 * ways[1]) - slope(x - 1e-6 * ways[1])) / 2e-6
    given = np.sum(np.real(trace_once(Gradient(slope, 0, False, True, False), (x,)) * ways[1]))
    assert_allclose(given, expected, rtol=1e-4, atol=1e-5)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def positive(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def inside(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-0.8, 0.8, shape)


def complex_normal(*shape, seed=0):
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 1)


X, Y, P, S, V = normal(3, 4), normal(3, 4, seed=1), positive(3, 4), inside(3, 4), normal(5)
Z, SQUARE = complex_normal(3, 4), normal(3, 3) + 3 * np.eye(3)
COMPLEX_SQUARE = complex_normal(3, 3) + 3 * np.eye(3)
ROWS = np.array([2, 0, 2])

# --- ufuncs ------------------------------------------------------------------------------------------------

UNARY = {
    "negative": X, "positive": X, "absolute": X, "fabs": X, "conjugate": X, "reciprocal": P, "square": X, "sqrt": P,
    "cbrt": P, "exp": X, "exp2": X, "expm1": X, "log": P, "log2": P, "log10": P, "log1p": P, "sin": X, "cos": X,
    "tan": S, "arcsin": S, "arccos": S, "arctan": X, "sinh": X, "cosh": X, "tanh": X, "arcsinh": X, "arccosh": P + 1,
    "arctanh": S, "deg2rad": X, "radians": X, "rad2deg": X, "degrees": X,
}  # fmt: skip
BINARY = {
    "add": (X, Y), "subtract": (X, Y), "multiply": (X, Y), "divide": (X, P), "power": (P, Y), "float_power": (P, Y),
    "hypot": (X, Y), "arctan2": (X, Y), "logaddexp": (X, Y), "logaddexp2": (X, Y), "maximum": (X, Y),
    "minimum": (X, Y), "fmax": (X, Y), "fmin": (X, Y), "fmod": (X, P), "remainder": (X, P), "nextafter": (X, Y),
    "copysign": (X, Y),
}  # fmt: skip
COMPLEX = ["negative", "conjugate", "reciprocal", "square", "sqrt", "exp", "log", "sin", "cos", "tan", "sinh", "cosh",
           "tanh", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "log1p", "expm1", "absolute", "sign",
           "exp2", "log2", "log10"]  # fmt: skip
UFUNCS = {
    **{name: [(lambda m, x, name=name: getattr(m, name)(x), x)] for name, x in UNARY.items()},
    **{name: [(lambda m, x, y, name=name: getattr(m, name)(x, y), *xs)] for name, xs in BINARY.items()},
    "clip": [(lambda m, x: m.clip(x, -0.5, 0.5), X), (lambda m, x, a, b: m.clip(x, a, b), X, -P, P),
             (lambda m, x: m.clip(x, 0.1, None), X), (lambda m, x: m.clip(x, None, 0.1), X)],
    "heaviside": [(lambda m, x, y: x * m.heaviside(x, y), X, P)],
    "ldexp": [(lambda m, x: m.ldexp(x, np.array([1, 0, 2, 3])), X)],
    "frexp": [(lambda m, x: m.frexp(x)[0] ** 2, X)],
    "modf": [(lambda m, x: m.modf(x)[0] ** 2, X)],
    "divmod": [(lambda m, x, y: m.divmod(x, y)[1] ** 2, X, P)],
    "matmul": [(lambda m, a, b: m.matmul(a, b), *args) for args in (
        (X, normal(4, 2)), (normal(2, 3, 4), normal(4, 2)), (normal(2, 3, 4), normal(2, 4, 2)), (X, normal(2, 4, 2)),
        (X, normal(4)), (normal(3), X), (normal(4), normal(2, 4, 3)), (normal(3), normal(3, seed=1)),
        (complex_normal(2, 3), complex_normal(3, 2)), (normal(2, 3), complex_normal(3)))],
    "vecdot": [(lambda m, a, b: m.vecdot(a, b), X, Y), (lambda m, a, b: m.vecdot(a, b), Z, complex_normal(4))],
    "matvec": [(lambda m, a, b: m.matvec(a, b), normal(2, 3, 4), normal(4))],
    "vecmat": [(lambda m, a, b: m.vecmat(a, b), normal(3), normal(2, 3, 4)),
               (lambda m, a, b: m.vecmat(a, b), complex_normal(3), Z)],
}  # fmt: skip

# --- functions ---------------------------------------------------------------------------------------------

REDUCTIONS = {
    "sum": [(lambda m, x: m.sum(x, axis=0), X), (lambda m, x: m.sum(x, axis=(0, 2)), normal(2, 3, 2)),
            (lambda m, x: x * m.sum(x, axis=1, keepdims=True), X), (lambda m, x: m.sum(x * x, where=X > 0), X),
            (lambda m, z: m.sum(z * z, axis=0), Z)],
    "prod": [(lambda m, x: m.prod(x, axis=1), X), (lambda m, x: m.prod(x), normal(2, 3)),
             (lambda m, z: m.prod(z, axis=0), complex_normal(3, 2)), (lambda m, x: m.prod(x, axis=0, where=X > 0), X)],
    "max": [(lambda m, x: m.max(x, axis=0), X), (lambda m, x: m.max(x, axis=0, initial=0.0), X)],
    "min": [(lambda m, x: m.min(x, axis=1, keepdims=True) * x, X)],
    "amax": [(lambda m, x: m.amax(x), X)],
    "amin": [(lambda m, x: m.amin(x, axis=1), X)],
    "mean": [(lambda m, x: m.mean(x, axis=0), X), (lambda m, x: m.mean(x, where=X > 0), X),
             (lambda m, z: m.mean(z, axis=1), Z), (lambda m, x: m.mean(x, axis=0, dtype=np.float64), X)],
    "var": [(lambda m, x: m.var(x, axis=1, ddof=1), X), (lambda m, z: m.var(z, axis=1), Z),
            (lambda m, x: m.var(x, axis=0, keepdims=True, where=X < 1), X)],
    "std": [(lambda m, x: m.std(x, axis=1), X), (lambda m, z: m.std(z, axis=0), Z)],
    "ptp": [(lambda m, x: m.ptp(x, axis=0), X)],
    "average": [(lambda m, x, w: m.average(x, axis=0, weights=w), X, P), (lambda m, x: m.average(x, axis=1), X),
                (lambda m, x, w: m.average(x, axis=1, weights=w), X, positive(4))],
    "cov": [(lambda m, x: m.cov(x), X), (lambda m, x: m.cov(x, rowvar=False, bias=True), X),
            (lambda m, x, y: m.cov(x, y), V, normal(5, seed=3))],
    "corrcoef": [(lambda m, x: m.corrcoef(x), X)],
    "median": [(lambda m, x: m.median(x, axis=0), X), (lambda m, x: m.median(x, axis=1, keepdims=True) * x, X)],
    "quantile": [(lambda m, x: m.quantile(x, 0.3, axis=1), X),
                 (lambda m, x: m.quantile(x, np.array([0.1, 0.9]), axis=(0, 1)), X)],
    "percentile": [(lambda m, x: m.percentile(x, 70.0), X)],
    "cumsum": [(lambda m, x: m.cumsum(x, axis=1), X), (lambda m, x: m.cumsum(x), X)],
    "cumprod": [(lambda m, x: m.cumprod(x, axis=1), X)],
    "cumulative_sum": [(lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True), X)],
    "cumulative_prod": [(lambda m, x: m.cumulative_prod(x, axis=0), X)],
    "trapezoid": [(lambda m, y: m.trapezoid(y, dx=0.5), X),
                  (lambda m, y, x: m.trapezoid(y, x, axis=0), X, positive(3))],
    "nansum": [(lambda m, x: m.nansum(holes(m, x), axis=0), X)],
    "nanprod": [(lambda m, x: m.nanprod(holes(m, x), axis=0), X)],
    "nanmax": [(lambda m, x: m.nanmax(holes(m, x), axis=0), X)],
    "nanmin": [(lambda m, x: m.nanmin(holes(m, x), axis=1), X)],
    "nanmean": [(lambda m, x: m.nanmean(holes(m, x), axis=0), X)],
    "nanvar": [(lambda m, x: m.nanvar(holes(m, x), axis=0, ddof=1), X)],
    "nanstd": [(lambda m, x: m.nanstd(holes(m, x), axis=1), X)],
    "nanmedian": [(lambda m, x: m.nanmedian(holes(m, x), axis=1), X)],
    "nanquantile": [(lambda m, x: m.nanquantile(holes(m, x), 0.3, axis=1), X)],
    "nanpercentile": [(lambda m, x: m.nanpercentile(holes(m, x), 60.0), X)],
    "nancumsum": [(lambda m, x: m.nancumsum(holes(m, x), axis=1), X)],
    "nancumprod": [(lambda m, x: m.nancumprod(holes(m, x), axis=1), X)],
}  # fmt: skip


def holes(m, x):
    return m.where(HOLES, np.nan, x)


HOLES = np.zeros((3, 4), bool)
HOLES[1, 2] = HOLES[0, 0] = True

PRODUCTS = {
    "dot": [(lambda m, a, b: m.dot(a, b), X, normal(4, 2)),
            (lambda m, a, b: m.dot(a, b), normal(2, 3, 4), normal(4, 2)),
            (lambda m, a, b: m.dot(a, b), X, normal(4)), (lambda m, a, b: m.dot(a, b), Z, complex_normal(4, 2))],
    "inner": [(lambda m, a, b: m.inner(a, b), X, Y), (lambda m, a, b: m.inner(a, b), normal(2, 3, 4), X)],
    "outer": [(lambda m, a, b: m.outer(a, b), V, normal(2))],
    "vdot": [(lambda m, a, b: m.vdot(a, b), X, Y), (lambda m, a, b: m.vdot(a, b), Z, complex_normal(3, 4, seed=4))],
    "tensordot": [(lambda m, a, b: m.tensordot(a, b, ([0, 1], [1, 0])), X, normal(4, 3, 2)),
                  (lambda m, a, b: m.tensordot(a, b, 1), normal(2, 3, 4), normal(4, 2))],
    "kron": [(lambda m, a, b: m.kron(a, b), normal(2, 2), normal(2, 3))],
    "cross": [(lambda m, a, b: m.cross(a, b), normal(4, 3), normal(4, 3, seed=1))],
    "trace": [(lambda m, x: m.trace(x, 1), X)],
    "einsum": [(lambda m, *args, s=s: m.einsum(s, *args), *args) for s, args in {
        "ij,jk->ki": (X, normal(4, 2)), "ij,ij": (X, Y), "ij->j": (X,), "i,i,i->": (V, V + 1, V - 1),
        "ii->i": (SQUARE,),
        "ii": (SQUARE,), "iij,j->i": (normal(2, 2, 3), normal(3)), "...ij,jk->...ik": (normal(2, 3, 4), normal(4, 2)),
        "...,...->...": (X, normal(4)), "i...->...": (X,), "ij,jk": (Z, complex_normal(4, 2)), "bi,bj->": (X,
        normal(3, 2)),
        "ij,ij->ij": (X, normal(1, 4))}.items()],
    "convolve": [(lambda m, a, v, mode=mode: m.convolve(a, v, mode), a, v) for mode in ("full", "same", "valid")
                 for a, v in ((V, normal(3)), (normal(2), V), (normal(4), normal(4)))],
    "correlate": [(lambda m, a, v, mode=mode: m.correlate(a, v, mode), a, v) for mode in ("full", "same", "valid")
                  for a, v in ((V, normal(3)), (normal(2), V), (complex_normal(4), complex_normal(2)))],
}  # fmt: skip
MOVES = {
    "reshape": [(lambda m, x: m.reshape(x, (2, 6)) ** 2, X), (lambda m, x: m.reshape(x.T, (2, 6)) ** 2, X),
                (lambda m, x: m.reshape(x, (2, 6), order="F") ** 2, X)],
    "ravel": [(lambda m, x: m.ravel(x) * np.arange(12.0), X)],
    "transpose": [(lambda m, x: m.transpose(x) * normal(4, 3), X),
                  (lambda m, x: m.transpose(x, (2, 0, 1)) ** 2, normal(2, 3, 4))],
    "matrix_transpose": [(lambda m, x: m.matrix_transpose(x)[0] ** 2, normal(2, 3, 4))],
    "moveaxis": [(lambda m, x: m.moveaxis(x, 0, -1)[1:] ** 2, normal(2, 3, 4))],
    "rollaxis": [(lambda m, x: m.rollaxis(x, 2)[1:] ** 2, normal(2, 3, 4))],
    "swapaxes": [(lambda m, x: m.swapaxes(x, 0, 1)[1] ** 2, normal(2, 3, 4))],
    "expand_dims": [(lambda m, x: m.expand_dims(x, 1) * normal(2, 1), X)],
    "squeeze": [(lambda m, x: m.squeeze(x) ** 2, normal(3, 1, 2))],
    "broadcast_to": [(lambda m, x: m.broadcast_to(x, (2, 3, 4)) ** 2, X),
                     (lambda m, x: m.broadcast_to(x, (2, 3, 4))[1, 1:] ** 2, X)],
    "broadcast_arrays": [(lambda m, x, y: m.broadcast_arrays(x, y)[1] ** 2, X, normal(4))],
    "atleast_1d": [(lambda m, x: m.atleast_1d(x) ** 2, X)],
    "atleast_2d": [(lambda m, x: m.atleast_2d(x) ** 2, V)],
    "atleast_3d": [(lambda m, x: m.atleast_3d(x) ** 2, X)],
    "diagonal": [(lambda m, x: m.diagonal(x) ** 2, X)],
    "diag": [(lambda m, x: m.diag(x) ** 2, X), (lambda m, x: m.diag(x, 1) * normal(6, 6), V)],
    "diagflat": [(lambda m, x: m.diagflat(x, 1) * normal(13, 13), X)],
    "lib.stride_tricks.sliding_window_view": [
        (lambda m, x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=0) ** 2, V)],
    "copy": [(lambda m, x: m.copy(x) * x, X)],
    "astype": [(lambda m, x: m.astype(x, np.float64) * x, X)],
    "roll": [(lambda m, x: m.roll(x, 1, axis=0) * Y, X)],
    "flip": [(lambda m, x: m.flip(x) * Y, X)],
    "fliplr": [(lambda m, x: m.fliplr(x) * Y, X)],
    "flipud": [(lambda m, x: m.flipud(x) * Y, X)],
    "rot90": [(lambda m, x: m.rot90(x) ** 2, X)],
    "repeat": [(lambda m, x: m.repeat(x, 2, axis=0) ** 2, X)],
    "tile": [(lambda m, x: m.tile(x, 2) ** 2, X)],
    "resize": [(lambda m, x: m.resize(x, (5, 3)) ** 2, X)],
    "delete": [(lambda m, x: m.delete(x, 1, axis=1) ** 2, X)],
    "insert": [(lambda m, x, v: m.insert(x, 1, v, axis=1) ** 2, X, normal(3)),
               (lambda m, x: m.insert(x, [1, 3], 5) ** 2, V)],
    "append": [(lambda m, x, y: m.append(x, y) ** 2, X, V), (lambda m, x, y: m.append(x, y, axis=0) ** 2, X, Y)],
    "pad": [(lambda m, x: m.pad(x, 1) ** 2, X), (lambda m, x: m.pad(x, 1, constant_values=2.0) ** 2, X),
            *[(lambda m, x, mode=mode: m.pad(x, ((1, 1), (0, 2)), mode=mode) ** 2, X)
              for mode in ("reflect", "edge", "wrap", "symmetric")]],
    "tril": [(lambda m, x: m.tril(x) ** 2, X)],
    "triu": [(lambda m, x: m.triu(x, 1) ** 2, X)],
    "take": [(lambda m, x: m.take(x, np.array([3, 0, 3]), axis=1) ** 2, X),
             (lambda m, x: m.take(x, ROWS, axis=0) ** 2, X)],
    "take_along_axis": [(lambda m, x: m.take_along_axis(x, m.argsort(x, axis=0), axis=0) * Y, X)],
    "choose": [(lambda m, x, y: m.choose(np.array([0, 1, 1, 0]), [x, y]) ** 2, X, Y),
               (lambda m, x, y: m.choose([0, 1, 1, 0], [x, y]) ** 2, X, Y)],
    "sort": [(lambda m, x: m.sort(x, axis=0) * Y, X), (lambda m, x: m.sort(x, axis=None) * np.arange(12), X)],
    "partition": [(lambda m, x: m.partition(x, 2, axis=1)[:, 2], normal(3, 7)),
                  (lambda m, x: m.partition(x, 20)[20:].sum() + m.partition(x, 20)[0], normal(40))],
    "sort_complex": [(lambda m, z: m.sort_complex(z) * np.arange(4), Z[0])],
    "concatenate": [(lambda m, x, y: m.concatenate([x, y, x], axis=1) ** 2, X, Y),
                    (lambda m, x, y: m.concatenate([x, y], axis=None) ** 2, X, V)],
    "stack": [(lambda m, x, y: m.stack([x, y], axis=1) ** 2, X, Y)],
    "hstack": [(lambda m, x, y: m.hstack([x, y]) ** 2, X, Y)],
    "vstack": [(lambda m, x, y: m.vstack([x, y]) ** 2, normal(3), normal(3))],
    "dstack": [(lambda m, x, y: m.dstack([x, y]) ** 2, X, Y)],
    "column_stack": [(lambda m, x, y: m.column_stack([x, y]) ** 2, X, normal(3))],
    "block": [(lambda m, x, y: m.block([[x, y], [y, x]]) ** 2, X, Y),
              (lambda m, x, y: m.block([x, y]) ** 2, V, normal(2))],
    "meshgrid": [(lambda m, x, y: m.meshgrid(x, y)[0] * m.meshgrid(x, y, indexing="ij")[1].T, V, normal(3))],
    "split": [(lambda m, x: m.split(x, 2, axis=1)[1] ** 2, X)],
    "array_split": [(lambda m, x: m.array_split(x, 3, axis=1)[0] ** 2, X)],
    "hsplit": [(lambda m, x: m.hsplit(x, 2)[1] ** 2, X)],
    "vsplit": [(lambda m, x: m.vsplit(x, 3)[1] ** 2, X)],
    "dsplit": [(lambda m, x: m.dsplit(x, 2)[1] ** 2, normal(2, 3, 4))],
    "unstack": [(lambda m, x: m.unstack(x)[1] ** 2, X)],
    "where": [(lambda m, x, y: m.where(x > y, x * y, y), X, Y)],
    "select": [(lambda m, x, y: m.select([X > 0.5, X > 0], [x * x, y], 3 * x), X, Y),
               (lambda m, x: m.select([X > 0.5], [x * x], 2), X)],
    "piecewise": [(lambda m, x: m.piecewise(x, [X < 0, X >= 1], [lambda v: v * v, 3.0, lambda v: -v]), X)],
    "real": [(lambda m, z: m.real(z) ** 2, Z), (lambda m, x: m.real(x) ** 2, X)],
    "imag": [(lambda m, z: m.imag(z) ** 2, Z)],
}  # fmt: skip
OTHERS = {
    "angle": [(lambda m, z: m.angle(z), Z), (lambda m, z: m.angle(z, deg=True), Z)],
    "diff": [(lambda m, x: m.diff(x) ** 2, X), (lambda m, x: m.diff(x, n=2, axis=0, prepend=0.5) ** 2, X)],
    "ediff1d": [(lambda m, x: m.ediff1d(x, to_begin=2.0) ** 2, X)],
    "gradient": [(lambda m, x: m.gradient(x, 0.5, axis=1) ** 2, X),
                 (lambda m, x: m.gradient(x, np.array([0.0, 1.0, 3.0, 3.5]), axis=1, edge_order=2) ** 2, X),
                 (lambda m, x: m.gradient(x)[0] * m.gradient(x)[1], X)],
    "interp": [(lambda m, x, fp: m.interp(x, np.arange(4.0), fp), P, normal(4)),
               (lambda m, x, xp, fp: m.interp(x, xp, fp, left=0.0, right=1.0), X, np.arange(4) - 0.3, normal(4))],
    "linspace": [(lambda m, a, b: m.linspace(a, b, 5) ** 2, normal(3), normal(3, seed=2)),
                 (lambda m, a: m.linspace(a, 2.0, 4, endpoint=False, axis=1) ** 2, normal(3))],
    "logspace": [(lambda m, a, b: m.logspace(a, b, 4), normal(3) * 0.3, normal(3, seed=2) * 0.3)],
    "geomspace": [(lambda m, a, b: m.geomspace(a, b, 4), positive(3), positive(3, seed=2))],
    "nan_to_num": [(lambda m, x: m.nan_to_num(holes(m, x)) ** 2, X)],
    "sinc": [(lambda m, x: m.sinc(x), X)],
    "unwrap": [(lambda m, x: m.unwrap(x) ** 2, 4 * V)],
    "poly": [(lambda m, r: m.poly(r), V)],
    "polyval": [(lambda m, p, x: m.polyval(p, x), V, X)],
    "polyadd": [(lambda m, p, q: m.polyadd(p, q) ** 2, V, normal(3))],
    "polysub": [(lambda m, p, q: m.polysub(p, q) ** 2, normal(3), V)],
    "polymul": [(lambda m, p, q: m.polymul(p, q) ** 2, V, normal(3))],
    "polyder": [(lambda m, p: m.polyder(p, 2) ** 2, V)],
    "polyint": [(lambda m, p: m.polyint(p, 2, k=[1.0, 2.0]) ** 2, V)],
    "polyfit": [(lambda m, x, y: m.polyfit(x, y, 2), np.arange(6.0) + 0.1 * normal(6), normal(6))],
    "roots": [(lambda m, p: m.sum(m.real(m.roots(p)) ** 2) + m.max(m.imag(m.roots(p))), np.array([1.0, 2.0, 5.0,
               3.0]))],
    "vander": [(lambda m, x: m.vander(x, 4), V), (lambda m, x: m.vander(x, 3, increasing=True), V)],
}  # fmt: skip
FOURIER = {
    **{f"fft.{name}": [(lambda m, x, name=name: getattr(m.fft, name)(x), normal(2, 6)),
                       (lambda m, x, name=name: getattr(m.fft, name)(x, 4, norm="ortho"), complex_normal(2, 6)),
                       (lambda m, x, name=name: getattr(m.fft, name)(x, 5, axis=0, norm="forward"), complex_normal(3,
                       2))]
       for name in ("fft", "ifft", "irfft", "hfft")},
    **{f"fft.{name}": [(lambda m, x, name=name: getattr(m.fft, name)(x), normal(2, 6)),
                       (lambda m, x, name=name: getattr(m.fft, name)(x, 5, axis=0, norm="ortho"), normal(3, 2))]
       for name in ("rfft", "ihfft")},
    **{f"fft.{name}": [(lambda m, x, name=name: getattr(m.fft, name)(x), complex_normal(2, 4)),
                       (lambda m, x, name=name: getattr(m.fft, name)(x, (3, 4), (0, 1), norm="ortho"),
                        complex_normal(2, 4, 2))] for name in ("fft2", "ifft2", "fftn", "ifftn", "irfft2", "irfftn")},
    **{f"fft.{name}": [(lambda m, x, name=name: getattr(m.fft, name)(x), normal(2, 4))] for name in ("rfft2", "rfftn")},
    "fft.fftshift": [(lambda m, x: m.fft.fftshift(x, axes=1) * Y, X)],
    "fft.ifftshift": [(lambda m, x: m.fft.ifftshift(x) * Y, X)],
}  # fmt: skip


def invariant(m, u, s, vh):
    """Return what the phases of singular vectors do not change."""
    return m.real(m.matmul(u * (s * normal(s.shape[-1], seed=3))[..., None, :], vh))


ALGEBRA = {
    "linalg.inv": [(lambda m, a: m.linalg.inv(a), a) for a in (SQUARE, COMPLEX_SQUARE, np.stack([SQUARE, SQUARE.T]))],
    "linalg.solve": [(lambda m, a, b: m.linalg.solve(a, b), a, b) for a, b in (
        (SQUARE, normal(3, 2)), (SQUARE, normal(3)), (np.stack([SQUARE, SQUARE.T]), normal(3)),
        (SQUARE, normal(2, 3, 2)), (COMPLEX_SQUARE, complex_normal(3)))],
    "linalg.det": [(lambda m, a: m.linalg.det(a), a) for a in (SQUARE, COMPLEX_SQUARE, np.stack([SQUARE, SQUARE.T]))],
    "linalg.slogdet": [(lambda m, a: m.linalg.slogdet(a)[1], SQUARE),
                       (lambda m, a: m.linalg.slogdet(a)[0], COMPLEX_SQUARE),
                       (lambda m, a: m.linalg.slogdet(a)[1], COMPLEX_SQUARE)],
    "linalg.pinv": [(lambda m, a: m.linalg.pinv(a), a) for a in (X, X.T, SQUARE, complex_normal(3, 2))],
    "linalg.cholesky": [(lambda m, a: m.linalg.cholesky(a @ a.T + 3 * np.eye(3)), normal(3, 3)),
                        (lambda m, a: m.linalg.cholesky(a @ m.conj(a).T + 3 * np.eye(3)), complex_normal(3, 3)),
                        (lambda m, a: m.linalg.cholesky(a @ a.T + 3 * np.eye(3), upper=True), normal(3, 3))],
    "linalg.qr": [*[(lambda m, a: m.concatenate([m.linalg.qr(a)[0] ** 2, m.linalg.qr(a)[1].T ** 2]), a)
                    for a in (normal(4, 3), SQUARE)],
                  (lambda m, a: m.linalg.qr(a)[1] ** 2, X), (lambda m, a: m.linalg.qr(a)[0] ** 2, X),
                  (lambda m, a: m.linalg.qr(a, mode="r") ** 2, normal(4, 3)),
                  (lambda m, a: m.abs(m.linalg.qr(a)[0]) ** 2, complex_normal(4, 3))],
    "linalg.eigh": [(lambda m, a: m.linalg.eigh(a + a.T)[0], SQUARE),
                    (lambda m, a: m.linalg.eigh(a + a.T)[1] ** 2, SQUARE),
                    (lambda m, a: m.abs(m.linalg.eigh(a + m.conj(a).T)[1]) ** 2, COMPLEX_SQUARE)],
    "linalg.eigvalsh": [(lambda m, a: m.linalg.eigvalsh(a + a.T), SQUARE),
                        (lambda m, a: m.linalg.eigvalsh(a + m.conj(a).T), COMPLEX_SQUARE)],
    "linalg.eig": [(lambda m, a, i=i: m.real(m.linalg.eig(a)[i]) ** 2, SQUARE @ SQUARE.T + np.triu(SQUARE))
                    for i in (0, 1)],
    "linalg.eigvals": [(lambda m, a: m.linalg.eigvals(a), COMPLEX_SQUARE),
                       (lambda m, a: m.real(m.linalg.eigvals(a)).sum() + m.abs(m.linalg.eigvals(a)).max(),
                        np.array([[1.0, 2.0], [-2.0, 0.5]]))],
    "linalg.svd": [*[(lambda m, a: invariant(m, *m.linalg.svd(a, full_matrices=False)), a)
                     for a in (X, X.T, SQUARE, Z, Z.T)],
                   (lambda m, a: m.linalg.svd(a, full_matrices=False)[0] ** 2, X.T),
                   (lambda m, a: m.linalg.svd(a)[1], X), (lambda m, a: m.linalg.svd(a, compute_uv=False), Z)],
    "linalg.svdvals": [(lambda m, a: m.linalg.svdvals(a), X)],
    "linalg.lstsq": [(lambda m, a, b: m.linalg.lstsq(a, b, rcond=None)[0], X.T, normal(4)),
                     (lambda m, a, b: m.linalg.lstsq(a, b, rcond=None)[1], X.T, normal(4, 2))],
    "linalg.cond": [(lambda m, a, p=p: m.linalg.cond(a, p), SQUARE) for p in (None, 1, -2, "fro")],
    "linalg.norm": [(lambda m, x, args=args: m.linalg.norm(x, *args), x) for x, args in (
        (X, ()), (X, (None, 1)), (X, (1, 1)), (X, (3, 0)), (X, (np.inf, 0)), (X, (-np.inf, 1)), (X, ("fro",)),
        (X, ("nuc",)), (X, (2,)), (X, (-2,)), (X, (1,)), (X, (-1,)), (X, (np.inf,)), (V, (2,)), (Z, (None, 0)),
        (normal(2, 3, 4), (2, (0, 2), True)))],
    "linalg.vector_norm": [(lambda m, x: m.linalg.vector_norm(x), X),
                           (lambda m, x: m.linalg.vector_norm(x, axis=0, ord=3), X)],
    "linalg.matrix_norm": [(lambda m, x: m.linalg.matrix_norm(x), normal(2, 3, 4)),
                           (lambda m, x: m.linalg.matrix_norm(x, ord="nuc", keepdims=True), X)],
    "linalg.matrix_power": [(lambda m, a, n=n: m.linalg.matrix_power(a, n), SQUARE) for n in (3, 0, -2)],
    "linalg.multi_dot": [(lambda m, a, b: m.linalg.multi_dot([a, b, a]), X, normal(4, 3))],
    "linalg.tensorinv": [(lambda m, a: m.linalg.tensorinv(a.reshape(2, 2, 4), 2), normal(4, 4) + 3 * np.eye(4))],
    "linalg.tensorsolve": [(lambda m, a, b: m.linalg.tensorsolve(a.reshape(2, 2, 4), b), normal(4, 4) + 3 * np.eye(4),
                            normal(2, 2))],
    "linalg.cross": [(lambda m, a, b: m.linalg.cross(a, b, axis=0), normal(3, 4), normal(3, 4, seed=1))],
    "linalg.diagonal": [(lambda m, x: m.linalg.diagonal(x) ** 2, normal(2, 3, 3))],
    "linalg.trace": [(lambda m, x: m.linalg.trace(x), normal(2, 3, 3)), (lambda m, x: m.linalg.trace(x, offset=1), X)],
    "linalg.outer": [(lambda m, a, b: m.linalg.outer(a, b), V, normal(2))],
    "linalg.matmul": [(lambda m, a, b: m.linalg.matmul(a, b), X, normal(4, 2))],
    "linalg.tensordot": [(lambda m, a, b: m.linalg.tensordot(a, b, axes=1), X, normal(4, 2))],
    "linalg.vecdot": [(lambda m, a, b: m.linalg.vecdot(a, b), X, Y),
                      (lambda m, a, b: m.linalg.vecdot(a, b, axis=0), X, Y)],
    "linalg.matrix_transpose": [(lambda m, x: m.linalg.matrix_transpose(x)[0] ** 2, normal(2, 3, 4))],
}  # fmt: skip
METHODS = {
    "sum": lambda x: x.sum(axis=0), "prod": lambda x: x.prod(axis=1), "max": lambda x: x.max(axis=0),
    "min": lambda x: x.min(), "mean": lambda x: x.mean(axis=1), "var": lambda x: x.var(axis=1),
    "std": lambda x: x.std(axis=0), "cumsum": lambda x: x.cumsum(axis=1), "cumprod": lambda x: x.cumprod(axis=0),
    "astype": lambda x: x.astype(np.complex128) * (1 + 2j), "copy": lambda x: x.copy() * x,
    "reshape": lambda x: x.reshape(4, 3) ** 2, "ravel": lambda x: x.ravel() ** 2, "dot": lambda x: x.dot(Y.T),
    "clip": lambda x: x.clip(-0.5, 0.5), "round": lambda x: x * x.round(1), "transpose": lambda x: x.transpose() ** 2,
    "conj": lambda x: x.conj() * x, "conjugate": lambda x: x.conjugate() * x,
    "swapaxes": lambda x: x.swapaxes(0, 1)[1] ** 2, "trace": lambda x: x.trace() ** 2,
    "squeeze": lambda x: x[:1].squeeze() ** 2, "diagonal": lambda x: x.diagonal() ** 2,
    "take": lambda x: x.take(ROWS, axis=1) ** 2, "repeat": lambda x: x.repeat(2) ** 2,
    "flatten": lambda x: x.flatten() ** 2, "T": lambda x: x.T[1] ** 2, "mT": lambda x: x.mT[1] ** 2,
    "real": lambda x: x.real ** 2, "imag": lambda x: x.imag + x,
}  # fmt: skip
EXAMPLES = UFUNCS | REDUCTIONS | PRODUCTS | MOVES | OTHERS | FOURIER | ALGEBRA | {
    f"ndarray.{name}": [(lambda m, x, fn=fn: fn(x), X)] for name, fn in METHODS.items() if fn is not None}

# --- what has no derivative --------------------------------------------------------------------------------

REASONS = {
    "gives truth values": [
        "all", "any", "isclose", "iscomplex", "isin", "isneginf", "isposinf", "isreal", "equal", "not_equal", "less",
        "less_equal", "greater", "greater_equal", "isfinite", "isinf", "isnan", "isnat", "logical_and", "logical_not",
        "logical_or", "logical_xor", "signbit", "is_busday", "ndarray.all", "ndarray.any"],
    "gives integers: places or counts": [
        "argmax", "argmin", "argpartition", "argsort", "count_nonzero", "digitize", "lexsort", "nanargmax", "nanargmin",
        "searchsorted", "linalg.matrix_rank", "ndarray.argmax", "ndarray.argmin", "ndarray.argsort",
        "ndarray.searchsorted", "einsum_path"],
    "is of integers": [
        "bitwise_and", "bitwise_count", "bitwise_or", "bitwise_xor", "gcd", "invert", "lcm", "left_shift",
        "right_shift",
        "packbits", "unpackbits", "ravel_multi_index", "unravel_index", "diag_indices_from", "tril_indices_from",
        "triu_indices_from", "ix_", "ndarray.choose"],
    "is constant between jumps": ["ceil", "fix", "floor", "floor_divide", "rint", "round", "around", "sign",
    "spacing", "trunc"],
    "depends on shape and dtype alone": [
        "empty_like", "full_like", "ones_like", "zeros_like", "shape", "ndim", "size", "result_type", "can_cast",
        "iscomplexobj", "isrealobj", "common_type", "min_scalar_type", "may_share_memory", "shares_memory"],
    "counts what is in bins": ["histogram2d", "histogramdd", "histogram_bin_edges"],
    "gives another dtype or shape at other values": ["real_if_close", "polydiv"],
    "runs a Python function on plain arrays: nf.vmap is its like": ["apply_along_axis", "apply_over_axes"],
    "needs the Bessel function of order 1, which NumPy has not": ["i0"],
    "is of dates and text": ["busday_count", "busday_offset", "datetime_as_string"],
}  # fmt: skip
