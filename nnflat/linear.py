"""The derivative rules of numpy.linalg and of einsum.

A rule takes the cotangents of the results (None is zero), the results, and the arguments of the call; it gives a
cotangent an argument. Factorisations follow Giles, "Collected matrix derivative results for forward and reverse mode
algorithmic differentiation", 2008; Murray, "Differentiation of the Cholesky decomposition", 2016; Walter, Lehmann,
"Algorithmic differentiation of linear algebra functions", 2010; Wan, Zhang, "Automatic differentiation for complex
valued SVD", 2019. Where a matrix is taken as Hermitian (eigh, cholesky) the two triangles share the derivative; what a
factorisation leaves open (the phase of a singular vector, a basis of an eigenspace) the function should not depend on.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnflat.rules import safe

Rule = Callable[..., list[Any]]
LETTERS = string.ascii_uppercase + string.ascii_lowercase


def transposed(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def adjoint(x: Any) -> Any:
    return np.conjugate(transposed(x))


def hermitian(x: Any) -> Any:
    return 0.5 * (x + adjoint(x))


def or_zero(cotangent: Any, y: Any) -> Any:
    return np.zeros(y.shape, y.dtype) if cotangent is None else cotangent


# --- equations ---------------------------------------------------------------------------------------------

def pull_inv(cotangents: list[Any], outputs: Sequence[Any], a: Any) -> list[Any]:
    y = transposed(outputs[0])
    return [-np.matmul(np.matmul(y, cotangents[0]), y)]


def pull_solve(cotangents: list[Any], outputs: Sequence[Any], a: Any, b: Any) -> list[Any]:
    vector = b.ndim == 1
    g, x = (each[..., None] if vector else each for each in (cotangents[0], outputs[0]))
    back = np.linalg.solve(transposed(a), g)
    return [-np.matmul(back, transposed(x)), back[..., 0] if vector else back]


def pull_det(cotangents: list[Any], outputs: Sequence[Any], a: Any) -> list[Any]:
    scale = cotangents[0] * outputs[0]
    return [scale[..., None, None] * transposed(np.linalg.inv(a))]


def pull_slogdet(cotangents: list[Any], outputs: Sequence[Any], a: Any) -> list[Any]:
    sign, scale = outputs[0], cotangents[1]
    if np.iscomplexobj(a) and cotangents[0] is not None:
        turned = np.real(cotangents[0] * sign * 1j) * -1j
        scale = turned if scale is None else turned + scale
    return [None if scale is None else scale[..., None, None] * transposed(np.linalg.inv(a))]


def pull_pinv(cotangents: list[Any], outputs: Sequence[Any], a: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Golub, Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems", 1973."""
    p, g = outputs[0], np.conjugate(cotangents[0])
    rows = g - np.matmul(p, np.matmul(a, g))
    columns = g - np.matmul(np.matmul(g, a), p)
    inside = np.matmul(adjoint(p), np.matmul(g, adjoint(p)))
    found = np.matmul(adjoint(columns), np.matmul(p, adjoint(p))) - inside
    return [np.conjugate(found + np.matmul(np.matmul(adjoint(p), p), adjoint(rows)))]


# --- factorisations ----------------------------------------------------------------------------------------

def pull_cholesky(cotangents: list[Any], outputs: Sequence[Any], a: Any, *, upper: bool = False) -> list[Any]:
    lower, g = (adjoint(outputs[0]), transposed(cotangents[0])) if upper else (outputs[0], np.conjugate(cotangents[0]))
    inner = np.matmul(adjoint(lower), g)
    n = lower.shape[-1]
    weight = (np.tril(np.ones((n, n))) - 0.5 * np.eye(n)).astype(lower.dtype)
    inverse = np.linalg.inv(lower)
    return [np.conjugate(hermitian(np.matmul(np.matmul(adjoint(inverse), inner * weight), inverse)))]


def pull_qr(cotangents: list[Any], outputs: Sequence[Any], a: Any, mode: str = "reduced") -> list[Any]:
    if mode not in ("reduced", "r"):
        raise TypeError(f"np.linalg.qr has a derivative rule in the modes 'reduced' and 'r', not {mode!r}")
    q, r = outputs if mode == "reduced" else np.linalg.qr(a)
    of_q, of_r = (None if g is None else np.conjugate(g) for g in ([None] * (mode == "r") + cotangents))
    of_q, of_r, k = or_zero(of_q, q), or_zero(of_r, r), r.shape[-2]
    of_q = of_q + np.matmul(a[..., k:], adjoint(of_r[..., k:]))
    upper = np.triu(np.matmul(of_r[..., :k], adjoint(r[..., :k])) - np.matmul(adjoint(q), of_q))
    diagonal = np.eye(k, dtype=r.dtype) * upper
    both = np.conjugate(np.matmul(q, upper + adjoint(upper) - 0.5 * (diagonal + adjoint(diagonal))) + of_q)
    left = transposed(np.linalg.solve(r[..., :k], transposed(both)))
    return [np.concatenate([left, np.conjugate(np.matmul(q, of_r[..., k:]))], axis=-1)]


def inverse_gaps(values: Any) -> Any:
    """Return 1 / (values[j] - values[i]); 0 where they are equal."""
    gaps = values[..., None, :] - values[..., :, None]
    return np.where(gaps == 0, 0, 1 / safe(gaps))


def pull_eigh(cotangents: list[Any], outputs: Sequence[Any], a: Any, *args: Any, **kwargs: Any) -> list[Any]:
    values, vectors = outputs if len(outputs) == 2 else np.linalg.eigh(a)
    inner = or_zero(cotangents[0], values)[..., None, :] * np.eye(a.shape[-1], dtype=values.dtype)
    if cotangents[1:] and cotangents[1] is not None:
        inner = inner + inverse_gaps(values) * np.matmul(adjoint(vectors), np.conjugate(cotangents[1]))
    return [np.conjugate(hermitian(np.matmul(np.matmul(vectors, inner), adjoint(vectors))))]


def pull_eig(cotangents: list[Any], outputs: Sequence[Any], a: Any) -> list[Any]:
    """Eigenvectors have length 1; their phase is taken to stay."""
    values, vectors = outputs if len(outputs) == 2 else np.linalg.eig(a)
    inner = or_zero(cotangents[0], values)[..., None, :] * np.eye(a.shape[-1], dtype=values.dtype)
    if cotangents[1:] and cotangents[1] is not None:
        along = np.real(np.sum(cotangents[1] * vectors, axis=-2, keepdims=True))
        turned = np.matmul(transposed(vectors), cotangents[1] - np.conjugate(vectors) * along)
        inner = inner + inverse_gaps(values) * turned
    back = transposed(vectors)
    return [np.matmul(np.linalg.solve(back, inner), back)]


def pull_svd(cotangents: list[Any], outputs: Sequence[Any], a: Any, full_matrices: bool = True,
             compute_uv: bool = True, hermitian: bool = False) -> list[Any]:
    vectors_count = 0 if len(outputs) == 1 else sum(g is not None for g in (cotangents[0], cotangents[2]))
    if vectors_count and full_matrices and a.shape[-1] != a.shape[-2]:
        raise TypeError("np.linalg.svd has a derivative rule for vectors with full_matrices=False: the rest of a full "
                        "basis is not unique")
    if not vectors_count:
        u, _, vh = np.linalg.svd(a, full_matrices=False)
        return [np.conjugate(np.matmul(u * cotangents[len(outputs) // 2][..., None, :], vh))]
    return [np.conjugate(singular_vectors(cotangents, *outputs))]


def singular_vectors(cotangents: list[Any], u: Any, s: Any, vh: Any) -> Any:
    of_u, of_vh = (np.conjugate(or_zero(g, x)) for g, x in ((cotangents[0], u), (cotangents[2], vh)))
    gaps = inverse_gaps(np.square(s))
    left, right = np.matmul(adjoint(u), of_u), np.matmul(vh, adjoint(of_vh))
    inner = (left - adjoint(left)) * gaps * s[..., None, :] + s[..., :, None] * ((right - adjoint(right)) * gaps)
    eye = np.eye(s.shape[-1], dtype=s.dtype)
    phases = 0.5 * eye * (left - adjoint(left)) / s[..., None, :]
    total = np.matmul(u, np.matmul(inner + phases + eye * or_zero(cotangents[1], s)[..., None, :], vh))
    outside_u = np.matmul((of_u - np.matmul(u, left)) / s[..., None, :], vh)
    outside_v = np.matmul(u, (of_vh - np.matmul(adjoint(right), vh)) / s[..., :, None])
    return total + outside_u + outside_v


# --- einsum ------------------------------------------------------------------------------------------------

def in_letters(args: Sequence[Any]) -> tuple[list[int], list[str], str]:
    """Return where the operands of einsum stand in its arguments, a term an operand, and the term of the result."""
    if isinstance(args[0], str):
        left, arrow, right = args[0].replace(" ", "").partition("->")
        places, terms = list(range(1, len(args))), left.split(",")
    else:
        places = list(range(0, len(args) - 1, 2))
        terms = [as_term(args[i + 1]) for i in places]
        arrow, right = ("->", as_term(args[-1])) if len(args) % 2 else ("", "")
    every = "".join(terms)
    if not arrow:
        right = "..." * ("..." in every) + "".join(sorted(c for c in set(every) - {"."} if every.count(c) == 1))
    return places, *without_ellipsis([np.ndim(args[i]) for i in places], terms, right)


def as_term(axes: Sequence[Any]) -> str:
    return "".join("..." if axis is Ellipsis else LETTERS[axis] for axis in axes)


def without_ellipsis(ndims: Sequence[int], terms: Sequence[str], right: str) -> tuple[list[str], str]:
    spare = [c for c in LETTERS if not any(c in term for term in terms)]
    hidden = [ndim - len(term.replace("...", "")) for ndim, term in zip(ndims, terms, strict=True)]
    names = "".join(spare[:max(hidden)])
    return [term.replace("...", names[len(names) - n:]) for term, n in zip(terms, hidden, strict=True)], right.replace(
        "...", names)


def pull_einsum(cotangents: list[Any], outputs: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    places, terms, right = in_letters(args)
    found: list[Any] = [None] * len(args)
    for i, place in enumerate(places):
        others = [(right, cotangents[0]), *((terms[j], args[k]) for j, k in enumerate(places) if j != i)]
        found[place] = einsum_operand(terms[i], args[place], others)
    return found


def einsum_operand(term: str, x: Any, others: list[tuple[str, Any]]) -> Any:
    """Return the cotangent of one operand: the einsum of all others; a letter that is there twice is a diagonal."""
    known = set("".join(each for each, _ in others))
    spare = [c for c in LETTERS if c not in known | set(term)]
    kept, shape, others = "", [], list(others)
    for place, (letter, n) in enumerate(zip(term, np.shape(x), strict=True)):
        if letter in term[:place]:
            fresh = spare.pop()
            others.append((letter + fresh, np.eye(n, dtype=x.dtype)))
            known |= {letter, fresh}
            letter = fresh
        kept += letter
        shape.append(n)
    there = [letter for letter in kept if letter in known]
    g = np.einsum(",".join(each for each, _ in others) + "->" + "".join(there), *[each for _, each in others])
    g = g[tuple(slice(None) if letter in known else None for letter in kept)] if kept else g
    return np.broadcast_to(g, [max(n, m) for n, m in zip(shape, np.shape(g), strict=True)])


ALGEBRA: dict[Any, Rule] = {
    np.linalg.inv: pull_inv, np.linalg.solve: pull_solve, np.linalg.det: pull_det, np.linalg.slogdet: pull_slogdet,
    np.linalg.pinv: pull_pinv, np.linalg.cholesky: pull_cholesky, np.linalg.qr: pull_qr, np.linalg.eigh: pull_eigh,
    np.linalg.eigvalsh: pull_eigh, np.linalg.eig: pull_eig, np.linalg.eigvals: pull_eig, np.linalg.svd: pull_svd,
    np.linalg.svdvals: pull_svd, np.einsum: pull_einsum,
}
