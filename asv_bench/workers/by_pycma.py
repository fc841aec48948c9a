"""pycma: another algorithm, its CMA-ES with a diagonal covariance, which is what n = 6020 allows."""

import cma
import numpy as np

from workers import cases
from workers.cases import POP, SIGMA, Work


def generation(case):
    size = cases.STRATEGIES[case]
    options = {"popsize": POP, "CMA_diagonal": True, "verbose": -9, "seed": 1}
    search = cma.CMAEvolutionStrategy(cases.start(size), SIGMA, options)

    def call():
        for _ in range(cases.GENERATIONS):
            population = search.ask()
            search.tell(population, [float(x @ x) for x in population])

    return Work(call, lambda: float(np.square(search.mean).mean() < 1))


MAKERS = dict.fromkeys(cases.STRATEGIES, generation)
