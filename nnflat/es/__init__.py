"""Evolution strategies over a flat vector: ask for candidates, evaluate them, tell their fitness."""

from nnflat.es.evaluators import Batch, Each, evaluate
from nnflat.es.gym import Gym
from nnflat.es.noise import Gaussian, Noise
from nnflat.es.openai import OpenAIES
from nnflat.es.policy import policy_for
from nnflat.es.record import Record
from nnflat.es.result import Result
from nnflat.es.run import run
from nnflat.es.shaping import centred_ranks
from nnflat.es.stop import MaxEvaluations, MaxSeconds, Solved
from nnflat.es.strategy import Strategy

__all__ = [
    "Batch",
    "Each",
    "Gaussian",
    "Gym",
    "MaxEvaluations",
    "MaxSeconds",
    "Noise",
    "OpenAIES",
    "Record",
    "Result",
    "Solved",
    "Strategy",
    "centred_ranks",
    "evaluate",
    "policy_for",
    "run",
]
