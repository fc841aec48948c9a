"""Let operations write where their results are wanted, and run in an order that keeps chains whole.

Invariants:

 A1  An operation is aimed at a part of another buffer only if nobody else writes that part.
 A2  A result may take the memory of an argument only if all that read the argument come before it is written, or are
     elementwise at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnflat._replay import BLOCK_SIZE
from nnflat.lower import Instruction
from nnflat.tape import Buffer, Operation, Window

AIMED = {"ufunc", "gufunc", "reduce", "where", "copy", "gather"}


def aim(operations: Sequence[Operation]) -> list[Operation]:
    """Drop copies of whole temporaries into parts of other buffers: their operations write there themselves. # A1"""
    writers: dict[Buffer, list[Operation]] = {}
    for operation in operations:
        for window in operation.outputs:
            writers.setdefault(window.buffer, []).append(operation)
    moved: dict[Buffer, tuple[Window, Window]] = {}
    dropped: set[int] = set()
    for operation in operations:
        if operation.kind == "copy" and can_aim(operation, writers, moved):
            source = writers[operation.inputs[0].buffer][0].outputs[0]
            moved[source.buffer] = source, operation.outputs[0]
            dropped.add(id(operation))
    return [redirected(each, moved) for each in operations if id(each) not in dropped]


def can_aim(operation: Operation, writers: dict[Buffer, list[Operation]],
            moved: dict[Buffer, tuple[Window, Window]]) -> bool:
    (source,), (target,) = operation.inputs, operation.outputs
    makers = writers.get(source.buffer, [])
    if source.buffer.role != "temporary" or len(makers) != 1 or source.buffer in moved or target.buffer in moved:
        return False
    maker = makers[0]
    if maker.kind not in AIMED or len(maker.outputs) != 1 or source.dtype != target.dtype:
        return False
    made = maker.outputs[0]
    whole = made.offset == source.offset == 0 and made.size == source.size and made.dtype == source.dtype
    return whole and all(in_c_order(each) for each in (made, source, target)) and alone(operation, target, writers)


def in_c_order(window: Window) -> bool:
    step = window.dtype.itemsize
    for size, stride in zip(window.shape[::-1], window.strides[::-1], strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def alone(operation: Operation, target: Window, writers: dict[Buffer, list[Operation]]) -> bool:
    """Whether all else that is written to the buffer of the target is apart from it."""
    low, high = target.offset, target.offset + target.size * target.dtype.itemsize
    for other in writers[target.buffer]:
        if other is operation:
            continue
        for window in other.outputs:
            if window.buffer is target.buffer and (not in_c_order(window) or not (
                    window.offset + window.size * window.dtype.itemsize <= low or window.offset >= high)):
                return False
    return True


def redirected(operation: Operation, moved: dict[Buffer, tuple[Window, Window]]) -> Operation:
    """Return an operation whose operands stand where their buffers have been moved to."""
    windows = (*operation.inputs, *operation.outputs)
    if not any(window.buffer in moved for window in windows) or operation.kind == "repeat":
        return operation

    def at(window: Window) -> Window:
        while window.buffer in moved:
            source, target = moved[window.buffer]
            window = replace(window, buffer=target.buffer, offset=target.offset + window.offset - source.offset)
        return window

    return replace(operation, inputs=tuple(map(at, operation.inputs)), outputs=tuple(map(at, operation.outputs)))


# --- order -------------------------------------------------------------------------------------------------

def hoist(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Move small instructions that do not depend on a chain before it, so that they do not cut it in two."""
    ordered: list[Instruction] = []
    chain: list[Instruction] = []
    for instruction in instructions:
        if blockable(instruction) and (not chain or list(instruction.dims) == list(chain[0].dims)):
            chain.append(instruction)
        elif chain and small(instruction) and independent(instruction, chain):
            ordered.append(instruction)
        else:
            ordered += chain
            chain = [instruction] if blockable(instruction) else []
            ordered += [] if chain else [instruction]
    return ordered + chain


def blockable(instruction: Instruction) -> bool:
    return (instruction.action == "loop" and instruction.elementwise and not instruction.outer
            and instruction.dims[0] > BLOCK_SIZE)


def small(instruction: Instruction) -> bool:
    return instruction.action in ("loop", "iterate") and instruction.work <= BLOCK_SIZE


def independent(instruction: Instruction, chain: Sequence[Instruction]) -> bool:
    writes = {instruction.operands[k][0] for k in instruction.writes}
    touched = {buffer for buffer, _ in instruction.operands}
    for other in chain:
        if touched & {other.operands[k][0] for k in other.writes} or writes & {buffer for buffer, _ in other.operands}:
            return False
    return True


# --- in place ----------------------------------------------------------------------------------------------

def in_place(instructions: Sequence[Instruction], members: Sequence[int], arguments: dict[Buffer, int],
             targets: Sequence[Window]) -> list[frozenset[int]]:
    """Return for each result the numbers of the arguments whose memory it may take. # A2"""
    return [frozenset(i for buffer, i in arguments.items() if may_take(target.buffer, buffer, instructions, members))
            for target in targets]


def may_take(result: Buffer, argument: Buffer, instructions: Sequence[Instruction], members: Sequence[int]) -> bool:
    writes = [i for i, each in enumerate(instructions) if any(each.operands[k][0] is result for k in each.writes)]
    if len(writes) != 1 or result.nbytes != argument.nbytes:
        return False
    at = writes[0]
    writer = instructions[at]
    if writer.action != "loop" or not writer.elementwise or len(writer.writes) != 1:
        return False
    place = end(writer, writer.writes[0])
    for i, each in enumerate(instructions):
        for k, (buffer, _) in enumerate(each.operands):
            if buffer is not argument:
                continue
            together = members[i] == members[at]
            if i > at or (together and (not each.elementwise or end(each, k) != place)):
                return False
    return True


def end(instruction: Instruction, k: int) -> tuple[object, ...]:
    """Return where operand k stands and how it moves: a single element does not."""
    n = len(instruction.operands)
    stride = instruction.strides[k] if instruction.dims[0] != 1 else 0
    return instruction.operands[k][1], stride, tuple(instruction.steps[k::n])
