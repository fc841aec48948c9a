"""numexpr: the chain as one expression, one thread."""

import numexpr
import numpy as np

from workers import cases
from workers.by_numpy import pure

numexpr.set_num_threads(1)


def chain(case):
    a, b = np.float32(1.5), np.float32(0.5)
    names = {"x": cases.drawn(10**6), "a": a, "b": b}
    text = "x"
    for _ in range(10):
        text = f"({text} + a) * b"
    return pure(lambda: numexpr.evaluate(text, names))


MAKERS = {cases.CHAIN: chain}
