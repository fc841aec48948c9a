"""Update rules over a flat vector, transforms of the gradient, and schedules of the rate."""

from nnflat.optim.adaptive import (
    AdaBelief,
    AdaDelta,
    AdaGrad,
    Adam,
    AdaMax,
    AdamW,
    AMSGrad,
    Lion,
    NAdam,
    RAdam,
    RMSProp,
)
from nnflat.optim.chain import chain, clip_norm, clip_value, weight_decay
from nnflat.optim.layered import LAMB, Muon
from nnflat.optim.rule import Rule
from nnflat.optim.schedules import constant, cosine, exponential, one_cycle, step, warmup
from nnflat.optim.sgd import SGD, ClipUp

__all__ = [
    "LAMB",
    "SGD",
    "AMSGrad",
    "AdaBelief",
    "AdaDelta",
    "AdaGrad",
    "AdaMax",
    "Adam",
    "AdamW",
    "ClipUp",
    "Lion",
    "Muon",
    "NAdam",
    "RAdam",
    "RMSProp",
    "Rule",
    "chain",
    "clip_norm",
    "clip_value",
    "constant",
    "cosine",
    "exponential",
    "one_cycle",
    "step",
    "warmup",
    "weight_decay",
]
