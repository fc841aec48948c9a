"""evotorch: PGPE as OpenAI-ES (mirrored noise, centred ranks, Adam, sigma held), a vectorised sphere."""

import numpy as np
import torch
from evotorch import Problem
from evotorch.algorithms import PGPE

from workers import cases
from workers.cases import ES_LR, POP, SIGMA, Work

torch.set_num_threads(1)


def generation(case):
    size = cases.STRATEGIES[case]
    problem = Problem(
        "min",
        lambda population: population.square().sum(dim=1),
        solution_length=size,
        initial_bounds=(-1, 1),
        vectorized=True,
        dtype=torch.float32,
        seed=0,
    )
    search = PGPE(
        problem,
        popsize=POP,
        center_learning_rate=ES_LR,
        stdev_learning_rate=0.0,
        stdev_init=SIGMA,
        optimizer="adam",
        ranking_method="centered",
        center_init=torch.tensor(cases.start(size)),
    )

    def call():
        for _ in range(cases.GENERATIONS):
            search.step()

    return Work(call, lambda: float(np.square(search.status["center"].numpy()).mean() < 1))


MAKERS = dict.fromkeys(cases.STRATEGIES, generation)
