"""The main job: CartPole-v1 evolved until it is solved, with the defaults of `nnflat evolve`."""

import time
from importlib.util import find_spec

import numpy as np

import nnflat as nf


def solve(seed: int) -> tuple[int, float]:
    """Return the generations, and the seconds of this process, until CartPole-v1 is solved."""
    from nnflat import es, optim
    from nnflat.es import defaults

    start = time.process_time()
    policy = es.policy_for("CartPole-v1", hidden=defaults.HIDDEN, rng=np.random.default_rng(seed))
    flat, layout = nf.destructure(policy)
    gym = es.Gym("CartPole-v1", policy, layout)
    strategy = es.OpenAIES(
        flat, maximize=True, pop=defaults.POP, sigma=defaults.SIGMA, optimizer=optim.Adam(defaults.LR), seed=seed
    )
    result = es.run(strategy, gym, generations=200, stop=[es.Solved(475)], progress=False)
    gym.close()
    if result.fitness < 475:
        raise RuntimeError(f"seed {seed} ended at {result.fitness}, unsolved")
    return result.generations, time.process_time() - start


class CartPole:
    """Generations and CPU seconds until a mean return of 475 over 100 fresh episodes."""

    params = ([0, 1, 2],)
    param_names = ("seed",)
    timeout = 120.0

    def setup_cache(self) -> dict[int, tuple[int, float]]:
        """Solve each seed once, where gymnasium is there."""
        return {seed: solve(seed) for seed in self.params[0]} if find_spec("gymnasium") else {}

    def track_generations(self, solved: dict[int, tuple[int, float]], seed: int) -> int:
        return _told(solved, seed)[0]

    def track_cpu(self, solved: dict[int, tuple[int, float]], seed: int) -> float:
        return _told(solved, seed)[1]

    track_generations.unit, track_cpu.unit = "generations", "seconds"


def _told(solved: dict[int, tuple[int, float]], seed: int) -> tuple[int, float]:
    if not solved:
        raise NotImplementedError("CartPole-v1 needs gymnasium: pip install 'nnflat[demo]'")
    return solved[seed]
