"""Instructions a call under callgrind: overhead that noise does not touch. Not applicable without valgrind."""

from . import instructions
from .gated import GATED


class Instructions:
    """All calls are counted in one process, once a commit."""

    params = (list(GATED),)
    param_names = ("call",)
    timeout = 300.0

    def setup_cache(self) -> dict[str, float]:
        return {} if instructions.missing() else instructions.counts()

    def track_instructions(self, counts: dict[str, float], name: str) -> float:
        if name not in counts:
            raise NotImplementedError(instructions.missing())
        return counts[name]

    track_instructions.unit = "instructions"
