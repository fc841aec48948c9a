"""Evolution strategies over a flat vector: ask for candidates, evaluate them, tell their fitness."""

from nnflat.es.ars import ARS
from nnflat.es.crfmnes import CRFMNES
from nnflat.es.engine import evaluate
from nnflat.es.environments import CartPole, Pendulum
from nnflat.es.evaluators import Batch, Each
from nnflat.es.forward import Forward
from nnflat.es.ga import GA
from nnflat.es.gym import Gym
from nnflat.es.lmmaes import LMMAES
from nnflat.es.log import JsonLines, TensorBoard
from nnflat.es.lowrank import LowRank
from nnflat.es.mezo import MeZO
from nnflat.es.native import Native
from nnflat.es.noise import Gaussian, Noise, Rademacher
from nnflat.es.openai import OpenAIES
from nnflat.es.pgpe import PGPE
from nnflat.es.play import play
from nnflat.es.policy import policy_for
from nnflat.es.pycma import PyCMA
from nnflat.es.record import Record
from nnflat.es.restarts import restarts
from nnflat.es.result import Result
from nnflat.es.run import run
from nnflat.es.sampler import Sampler
from nnflat.es.sepcma import SepCMA
from nnflat.es.shaping import centred_ranks, linear_ranks, nes_utilities, raw, top_k, zscore
from nnflat.es.snes import SNES
from nnflat.es.stop import MaxEvaluations, MaxSeconds, Solved, Stagnation
from nnflat.es.strategy import Strategy
from nnflat.es.table import Table
from nnflat.es.xnes import XNES

__all__ = [
    "ARS",
    "CRFMNES",
    "GA",
    "LMMAES",
    "PGPE",
    "SNES",
    "XNES",
    "Batch",
    "CartPole",
    "Each",
    "Forward",
    "Gaussian",
    "Gym",
    "JsonLines",
    "LowRank",
    "MaxEvaluations",
    "MaxSeconds",
    "MeZO",
    "Native",
    "Noise",
    "OpenAIES",
    "Pendulum",
    "PyCMA",
    "Rademacher",
    "Record",
    "Result",
    "Sampler",
    "SepCMA",
    "Solved",
    "Stagnation",
    "Strategy",
    "Table",
    "TensorBoard",
    "centred_ranks",
    "evaluate",
    "linear_ranks",
    "nes_utilities",
    "play",
    "policy_for",
    "raw",
    "restarts",
    "run",
    "top_k",
    "zscore",
]
