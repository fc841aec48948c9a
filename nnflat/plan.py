"""Plan a tape: drop what nobody reads, block elementwise chains, pack temporaries into one workspace.

Invariants:

 P1  Two buffers share memory only if one is dead before the other is written, or if the operation that ends one and
     begins the other is elementwise and their windows agree in place, strides and item size.
 P2  A chain counts as one moment: what it reads lives to its end, what it writes from its beginning.
 P3  A buffer that lives inside a chain has the memory of one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnflat._replay import BLOCK_SIZE, Form, Replay
from nnflat.lower import Instruction, lower
from nnflat.tape import Buffer, Operation, Tape, Window, live_operations

ALIGNMENT = 64
TEMPORARY = "temporary"


@dataclass(eq=False, slots=True)
class Plan:
    """A planned tape and what it was planned from, for `explain`."""

    replay: Replay
    operations: list[Operation]


def plan(tape: Tape, results: Sequence[tuple[Window, np.ndarray, str]], forms: Sequence[Form] | None = None,
         *, contiguous: Sequence[bool] | None = None) -> Plan:
    """Plan the tape for results given as (window, the eager array, kind).

    `forms` has the form of each argument, statics included; without it all are arrays. `contiguous` says which results
    are laid out in C order.
    """
    operations = list(tape.operations)
    in_order = contiguous or [False] * len(results)
    targets = [place_result(window, array, operations, c)
               for (window, array, _), c in zip(results, in_order, strict=True)]
    wanted = {target.buffer for target in targets}
    live = list(live_operations(operations, wanted))[::-1]
    instructions = [instruction for operation in live for instruction in lower(operation)]
    mark_chains(instructions)
    mark_local(instructions)
    temporaries, nbytes = pack(instructions)
    return Plan(make_replay(tape, instructions, temporaries, nbytes, targets, [kind for _, _, kind in results], forms),
                live)


def place_result(window: Window, array: np.ndarray, operations: list[Operation], contiguous: bool) -> Window:
    """Let the operation write straight into the result where it can; else copy at the end."""
    strides = np.empty_like(array, order="C" if contiguous else "K", subok=False).strides
    buffer = window.buffer
    whole = window.offset == 0 and buffer.nbytes == array.nbytes
    same = window.strides == strides and window.dtype == array.dtype
    if buffer.role == TEMPORARY and whole and same and written(buffer, operations):
        buffer.role = "result"
        return window
    target = Window(Buffer("result", array.nbytes), 0, window.shape, strides, array.dtype)
    operations.append(Operation("copy", "copy", (window,), (target,), {}))
    return target


def written(buffer: Buffer, operations: list[Operation]) -> bool:
    return any(window.buffer is buffer for operation in operations for window in operation.outputs)


# --- chains ------------------------------------------------------------------------------------------------

def blockable(instruction: Instruction) -> bool:
    return (instruction.action == "loop" and instruction.elementwise and not instruction.outer
            and instruction.dims[0] > BLOCK_SIZE)


def mark_chains(instructions: list[Instruction]) -> None:
    """Mark runs of elementwise instructions over the same elements, read where they were written."""
    start = 0
    while start < len(instructions):
        stop = chain_end(instructions, start)
        instructions[start].chain = max(stop - start, 1)
        for instruction in instructions[start:stop]:
            instruction.chained = stop - start > 1
        start = max(stop, start + 1)


def chain_end(instructions: list[Instruction], start: int) -> int:
    places: dict[Any, tuple[int, int]] = {}
    for i in range(start, len(instructions)):
        instruction = instructions[i]
        if not blockable(instruction) or list(instruction.dims) != list(instructions[start].dims):
            return i
        ends = list(zip(instruction.operands, instruction.strides, strict=True))
        if any(places.get(buffer, (offset, stride)) != (offset, stride) for (buffer, offset), stride in ends):
            return i
        for k in instruction.writes:
            (buffer, offset), stride = ends[k]
            places[buffer] = (offset, stride)
    return len(instructions)


def mark_local(instructions: list[Instruction]) -> None:
    """Find the buffers that are written and read inside one chain only. # P3"""
    users: dict[Any, set[int]] = {}
    members = list(chain_members(instructions))
    for instruction, chain in zip(instructions, members, strict=True):
        for buffer, _ in instruction.operands:
            users.setdefault(buffer, set()).add(chain)
    lengths = {chain: members.count(chain) for chain in set(members)}
    for instruction, chain in zip(instructions, members, strict=True):
        for k, (buffer, _) in enumerate(instruction.operands):
            if buffer.role == TEMPORARY and len(users[buffer]) == 1 and lengths[chain] > 1:
                instruction.local |= 1 << k


def chain_members(instructions: list[Instruction]) -> list[int]:
    """Return, an instruction, the number of the first instruction of its chain."""
    members: list[int] = []
    while len(members) < len(instructions):
        members += [len(members)] * instructions[len(members)].chain
    return members


# --- the workspace -----------------------------------------------------------------------------------------

@dataclass(eq=False, slots=True)
class Slot:
    """Memory of one or more buffers that follow each other in place."""

    first: int
    last: int
    nbytes: int
    local: bool
    offset: int = 0


def pack(instructions: list[Instruction]) -> tuple[list[tuple[Buffer, int]], int]:
    """Give each temporary its offset into one workspace; return them and the workspace's size."""
    slots = make_slots(instructions)
    placed: list[Slot] = []
    for slot in sorted({id(slot): slot for slot in slots.values()}.values(), key=lambda slot: slot.first):
        busy = sorted((other.offset, other.offset + other.nbytes) for other in placed
                      if other.last >= slot.first and other.first <= slot.last)
        for low, high in busy:
            if slot.offset + slot.nbytes <= low:
                break
            slot.offset = max(slot.offset, -(-high // ALIGNMENT) * ALIGNMENT)
        placed.append(slot)
    nbytes = max((slot.offset + slot.nbytes for slot in placed), default=0)
    return [(buffer, slot.offset) for buffer, slot in slots.items()], nbytes


def make_slots(instructions: list[Instruction]) -> dict[Buffer, Slot]:
    slots: dict[Buffer, Slot] = {}
    members = chain_members(instructions)
    ends = {first: len(members) - 1 - members[::-1].index(first) for first in set(members)}
    final = {buffer: i for i, each in enumerate(instructions) for buffer, _ in each.operands}
    for i, instruction in enumerate(instructions):
        for k, (buffer, _) in enumerate(instruction.operands):
            if buffer.role != TEMPORARY:
                continue
            local = bool(instruction.local >> k & 1)
            if buffer not in slots:
                slots[buffer] = heir(instruction, k, i, slots, final) or Slot(
                    i if local else members[i], i, block_bytes(instruction, k) if local else buffer.nbytes, local)
            slots[buffer].last = i if local else ends[members[i]]
    return slots


def block_bytes(instruction: Instruction, k: int) -> int:
    return BLOCK_SIZE * abs(instruction.strides[k])


def heir(instruction: Instruction, k: int, i: int, slots: dict[Buffer, Slot], final: dict[Buffer, int]) -> Slot | None:
    """Return the slot of an input that ends here and whose memory the output may take. # P1"""
    if not instruction.elementwise or instruction.action != "loop" or k != instruction.writes[0]:
        return None
    output, place = instruction.operands[k][0], end(instruction, k)
    local = instruction.local >> k & 1
    for j in range(k):
        buffer = instruction.operands[j][0]
        same = [m for m in range(k) if instruction.operands[m][0] is buffer]
        if (buffer.role == TEMPORARY and final[buffer] == i and buffer.nbytes == output.nbytes
                and all(end(instruction, m) == place for m in same) and instruction.local >> j & 1 == local
                and (local or not instruction.chained) and slots[buffer].local == bool(local)):
            return slots[buffer]
    return None


def end(instruction: Instruction, k: int) -> tuple[Any, ...]:
    """Return where operand k stands and how it moves."""
    n = len(instruction.operands)
    return instruction.operands[k][1], instruction.strides[k], tuple(instruction.steps[k::n])


# --- the replay --------------------------------------------------------------------------------------------

def make_replay(tape: Tape, instructions: list[Instruction], temporaries: list[tuple[Buffer, int]], nbytes: int,
                targets: list[Window], kinds: list[str], forms: Sequence[Form] | None) -> Replay:
    numbers: dict[Buffer, int] = {}

    def number(buffer: Buffer) -> int:
        return numbers.setdefault(buffer, len(numbers))

    windows = iter(tape.arguments)
    arguments = [(0, form) if form.name == "static" else (number(next(windows)[0]), form)
                 for form in forms or [form_of(window, "array") for _, window in tape.arguments]]
    for instruction in instructions:
        instruction.operands = [(number(buffer), offset) for buffer, offset in instruction.operands]
    captured = [(numbers[window.buffer], window.buffer.array, form_of(window, "array"))
                for window in tape.captured.values()
                if window.buffer in numbers and window.buffer.role == "captured"]
    return Replay(
        instructions,
        arguments=arguments,
        captured=captured,
        constants=[(n, buffer.array) for buffer, n in numbers.items() if buffer.role == "constant"],
        temporaries=[(numbers[buffer], offset) for buffer, offset in temporaries],
        nbytes=nbytes,
        results=[(number(target.buffer), form_of(target, kind)) for target, kind in zip(targets, kinds, strict=True)],
        nbuffers=len(numbers) + len(targets),
        outer=[(numbers[window.buffer], window.buffer.window) for window in tape.outer.values()
               if window.buffer in numbers],
    )


def form_of(window: Window, kind: str) -> Form:
    return Form(kind, window.dtype, window.shape, window.strides, aligned=window.aligned)
