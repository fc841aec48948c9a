"""Print a tape for people: what runs, over which memory, and why it may be slow."""

from __future__ import annotations

from nnflat.plan import Plan
from nnflat.tape import Operation, Window


def explain(plan: Plan) -> str:
    """Describe a plan, one operation a line: shapes and dtypes, buffers, and what costs more than a loop."""
    flops = sum(estimated_flops(operation) for operation in plan.operations)
    lines = rows_of(plan.operations)
    chains = [instruction.chain for instruction in plan.replay.instructions if instruction.chain > 1]
    lines.append(f"{len(plan.operations)} operations, {flops:,} flops estimated, "
                 f"workspace {plan.replay.nbytes:,} bytes, {len(plan.replay.captured)} captured arrays")
    if chains:
        lines.append(f"elementwise chains run in blocks: {', '.join(str(n) for n in chains)} operations")
    return "\n".join(lines)


def rows_of(operations: list[Operation], indent: str = "") -> list[str]:
    """Return a line for each operation, and below a vmap or scan those of the tape inside."""
    lines = []
    for i, operation in enumerate(operations):
        inputs = ", ".join(describe(window) for window in operation.inputs)
        outputs = ", ".join(describe(window) for window in operation.outputs)
        lines.append(f"{indent}{i:3} {operation.kind:8} {operation.name:14} {inputs} -> {outputs}{price(operation)}")
        if operation.inner is not None:
            lines += rows_of(operation.inner.plan.operations, indent + "    ")
    return lines


def describe(window: Window) -> str:
    return f"{window.dtype}{list(window.shape)} {window.buffer.role} {window.buffer.nbytes:,} B"


def price(operation: Operation) -> str:
    """Say why an operation costs more than its arithmetic."""
    if operation.inner is not None:
        return f"   | {operation.inner.rows:,} times the tape below"
    if operation.kind == "call":
        return f"   | NumPy itself, with the GIL: some microseconds ({operation.where})"
    if operation.kind == "copy":
        source, target = operation.inputs[0].dtype, operation.outputs[0].dtype
        what = f"a cast from {source} to {target}" if source != target else f"a copy: {reason(operation)}"
        return f"   | {what}, {operation.outputs[0].size:,} elements{f' ({operation.where})' * bool(operation.where)}"
    return ""


def reason(operation: Operation) -> str:
    """Say why a copy is needed."""
    if operation.name != "copy":
        return WHY.get(operation.name, operation.name)
    if operation.outputs[0].buffer.role == "result" and not operation.where:
        return "the result is a view of, or is, something else that is kept"
    return "asked for, or an order that an operation needs"


WHY = {
    "cast": "an operand that is not aligned",
    "reshape": "what is not contiguous has no view of another shape",
    "concatenate": "a part of an array that is put together",
    "stack": "a part of an array that is put together",
    "zeros": "an array begins as zeros",
}


def estimated_flops(operation: Operation) -> int:
    if operation.inner is not None:
        return operation.inner.rows * sum(estimated_flops(each) for each in operation.inner.plan.operations)
    if operation.kind == "gufunc":
        return 2 * operation.outputs[0].size * (operation.inputs[0].shape[-1] if operation.inputs[0].shape else 1)
    if operation.kind in ("reduce", "accumulate"):
        return operation.inputs[0].size
    return operation.outputs[0].size if operation.kind == "ufunc" else 0
