"""Print a tape for people: what runs, over which memory, and why it may be slow."""

from __future__ import annotations

from math import prod

from nnflat.plan import Plan
from nnflat.tape import Operation, Window


def explain(plan: Plan) -> str:
    """Describe a plan, one operation a line: shapes and dtypes, buffers, and what costs more than a loop."""
    lines = [row(i, operation) for i, operation in enumerate(plan.operations)]
    flops = sum(estimated_flops(operation) for operation in plan.operations)
    chains = [instruction.chain for instruction in plan.replay.instructions if instruction.chain > 1]
    lines.append(f"{len(plan.operations)} operations, {flops:,} flops estimated, "
                 f"workspace {plan.replay.nbytes:,} bytes, {len(plan.replay.captured)} captured arrays")
    if chains:
        lines.append(f"elementwise chains run in blocks: {', '.join(str(n) for n in chains)} operations")
    return "\n".join(lines)


def row(i: int, operation: Operation) -> str:
    inputs = ", ".join(describe(window) for window in operation.inputs)
    outputs = ", ".join(describe(window) for window in operation.outputs)
    return f"{i:3} {operation.kind:10} {operation.name:14} {inputs} -> {outputs}{price(operation)}"


def describe(window: Window) -> str:
    return f"{window.dtype}{list(window.shape)} {window.buffer.role}"


def price(operation: Operation) -> str:
    """Say why an operation costs more than its arithmetic."""
    if operation.kind == "call":
        return f"   | NumPy itself, with the GIL: some microseconds ({operation.where})"
    if operation.kind == "copy" and operation.name == "cast":
        source, target = operation.inputs[0].dtype, operation.outputs[0].dtype
        return f"   | a cast from {source} to {target} ({operation.where})"
    if operation.kind == "copy":
        return f"   | a copy of {prod(operation.outputs[0].shape):,} elements"
    return ""


def estimated_flops(operation: Operation) -> int:
    if operation.kind == "gufunc":
        return 2 * operation.outputs[0].size * (operation.inputs[0].shape[-1] if operation.inputs[0].shape else 1)
    if operation.kind in ("reduce", "accumulate"):
        return operation.inputs[0].size
    return operation.outputs[0].size if operation.kind == "ufunc" else 0
