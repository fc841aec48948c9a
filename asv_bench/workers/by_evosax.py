"""evosax: OpenAI-ES, a hundred generations in one jitted scan, as its examples have it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from evosax.algorithms import Open_ES

from workers import cases
from workers.cases import ES_LR, POP, SIGMA, Work


def generation(case):
    size = cases.STRATEGIES[case]
    strategy = Open_ES(
        population_size=POP,
        solution=jnp.zeros(size),
        optimizer=optax.adam(ES_LR),
        std_schedule=optax.constant_schedule(SIGMA),
    )
    params = strategy.default_params

    def one(state, key):
        ask, tell = jax.random.split(key)
        population, state = strategy.ask(ask, state, params)
        state, _ = strategy.tell(tell, population, jnp.square(population).sum(axis=1), state, params)
        return state, None

    run = jax.jit(lambda state, key: jax.lax.scan(one, state, jax.random.split(key, cases.GENERATIONS))[0])
    held = [strategy.init(jax.random.key(0), jnp.asarray(cases.start(size)), params), jax.random.key(1)]

    def call():
        held[1], key = jax.random.split(held[1])
        held[0] = jax.block_until_ready(run(held[0], key))

    return Work(call, lambda: float(np.square(np.asarray(strategy.get_mean(held[0]))).mean() < 1))


MAKERS = dict.fromkeys(cases.STRATEGIES, generation)
