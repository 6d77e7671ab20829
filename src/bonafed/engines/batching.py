"""The rows and memories of the clients who answer at the same time, put together for one step.

`Blocks` are made once, for clients who mostly answer together. `Rows` makes a block of any clients
when it is needed, so that nothing is stored twice. Memories are rows of arrays that the engine
overwrites in place.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import MANY, Block
from bonafed.codec import FIELDS
from bonafed.rounds import mapped, members, settled

# ---- rows


# bytes of rows of which a padded copy is kept; larger ones are put together when they are needed
SMALL = 2**26
# bytes of rows from which no copy is kept, even if all clients step together in every round
LARGE = 2**30


class Blocks:
    """Blocks that are made once: those of the federation, or one for each client in order.

    Attributes
    ----------
    together : clients in a block at most
    sort : (N,) the block of each client; clients of another one never step with it
    ordered : whether the clients of all blocks, one block after the other, are in order
    """

    fixed: ClassVar[bool] = True

    def __init__(self, federation: "FederatedData", together: int) -> None:
        alone = range(federation.n_clients if together == 1 else 0)
        self.blocks = [federation.block(i) for i in alone] or federation.blocks(together)
        self.together, self.example = together, self.blocks[0]
        self.everybody = np.concatenate([block.index for block in self.blocks], dtype=np.int64)
        self.sort, self.position = np.zeros((2, len(self.everybody)), np.int32)
        for number, block in enumerate(self.blocks):
            self.sort[block.index] = number
            self.position[block.index] = np.arange(len(block.index))
        self.ordered = bool((np.diff(self.everybody) > 0).all())

    def arranged(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """These clients block by block, as they stand in their blocks."""
        if len(ids) == len(self.everybody):
            return self.everybody
        return ids[np.lexsort((self.position[ids], self.sort[ids]))]

    def block(self, ids: NDArray[np.int64], whole: bool = False) -> Block:
        """The block of these clients of one block, in its order."""
        block = self.blocks[self.sort[ids[0]]]
        return (
            block
            if len(ids) == len(block.names)
            else block.part(self.position[ids].astype(np.intp))
        )


class Rows:
    """The rows of all clients, from which blocks are made: at most ``together`` clients of similar
    numbers of rows, padded to the longest. Attributes as of `Blocks`.
    """

    fixed: ClassVar[bool] = False
    ordered: ClassVar[bool] = True

    def __init__(self, federation: "FederatedData", together: int) -> None:
        self.alone: list[Block] = [federation.block(i) for i in range(federation.n_clients)]
        self.together, self.example = together, self.alone[0]
        self.bytes = sum(block.y.size * block.n_features * 8 for block in self.alone)
        lengths = np.array([block.y.shape[1] for block in self.alone])
        even = lengths.max() <= 2 * lengths.mean()
        # else longer than half the longest
        sorts = [0 if even else int(m - 1).bit_length() for m in lengths]
        for i, block in enumerate(self.alone):
            # sparse ones stay alone
            sorts[i] = sorts[i] if isinstance(block.X, np.ndarray) else -1 - i
        self.sort = np.array(sorts, np.int32)
        self.all: dict[int, Block] = {}  # by sort, where small
        self.position = np.empty(len(self.alone), np.intp)  # of each client in that block
        for sort in np.unique(self.sort).tolist():
            ids = np.flatnonzero(self.sort == sort).tolist()
            if len(ids) < 2:
                continue  # whose rows may be sparse
            largest = max(self.alone[i].X.nbytes for i in ids)  # pyright: ignore
            if len(ids) * largest <= SMALL:
                self.all[sort] = stacked([self.alone[i] for i in ids])
                self.position[ids] = np.arange(len(ids))
        self.one = self.all.get(sorts[0]) if len(set(sorts)) == 1 else None  # all clients, in order
        self.known: dict[tuple[int, ...], Block | None] = {}  # of rounds of all; None: met once

    def arranged(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """These clients in ascending order."""
        return np.sort(ids)

    def block(self, ids: NDArray[np.int64], whole: bool = False) -> Block:
        """The block of these clients, who are of one sort and in ascending order; where the
        ``whole`` federation steps, it is made once for those who step together again and again.
        """
        if not whole or self.bytes > LARGE:
            return self._block(ids)
        key = tuple(ids.tolist())
        if key not in self.known:
            self.known[key] = None
            return self._block(ids)
        if (known := self.known[key]) is None:
            known = self.known[key] = self._block(ids)
        return known

    def _block(self, ids: NDArray[np.int64]) -> Block:
        if len(ids) == 1:
            return self.alone[ids[0]]
        if self.one is not None:
            return self.one.part(ids)
        if (whole := self.all.get(int(self.sort[ids[0]]))) is None:
            return stacked([self.alone[i] for i in ids])
        return whole.part(self.position.take(ids))


def stacked(parts: Sequence[Block]) -> Block:
    """One padded block of blocks of one client each."""
    y = _padded([part.y for part in parts])
    for k, part in enumerate(parts):
        # a target that is valid for every loss; its share is 0
        y[k, part.y.shape[1] :] = part.y[0, 0]
    pairs = [part.linear for part in parts if part.linear is not None]
    linear = (_padded([C for C, _ in pairs]), _padded([d for _, d in pairs])) if pairs else None
    X, share = _padded([part.X for part in parts]), _padded([part.share for part in parts])
    index = np.concatenate([part.index for part in parts])
    columns = {key: _padded([part.columns[key] for part in parts]) for key in parts[0].columns}
    return Block(X, y, share, index, tuple([part.names[0] for part in parts]), columns, linear)


def _padded(parts: Sequence[Any]) -> NDArray[Any]:
    """Arrays (1, m_i, ...) as (n, max m_i, ...), filled up with zeros."""
    length = parts[0].shape[1]
    if all(part.shape[1] == length for part in parts):
        return np.concatenate(parts)
    longest = max(part.shape[1] for part in parts)
    whole = np.zeros((len(parts), longest, *parts[0].shape[2:]), np.result_type(*parts))
    for k, part in enumerate(parts):
        whole[k, : part.shape[1]] = part[0]
    return whole


# ---- memories


def form(value: object) -> Any:
    """The form of a value: all of it but the numbers in its arrays and their leading axis.

    Values of equal forms can be stacked.
    """
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape[1:]
    if (fields := FIELDS.get(type(value))) is not None:
        parts = [getattr(value, name) for name in fields]
        forms = [(p.dtype, p.shape[1:]) if type(p) is np.ndarray else form(p) for p in parts]
        return type(value), *forms
    if isinstance(value, tuple):
        return (tuple, *map(form, value))
    if isinstance(value, dict):
        return (dict, *[(key, form(part)) for key, part in value.items()])
    return None if value is None else (type(value), repr(value))


class Each(Sequence[Any]):
    """The memories of many clients, each made of rows of the arrays when it is asked for."""

    def __init__(self, kind: type, arrays: Sequence[NDArray[Any]]) -> None:
        self.kind, self.arrays = kind, arrays

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return tuple(self[k] for k in range(*i.indices(len(self))))
        k = range(len(self))[i]
        return self.kind(*[array[k : k + 1] for array in self.arrays])


class Memories:
    """The memories of all clients as rows of arrays, with separate arrays for each form of memory.

    Arrays are made for all clients, but pages that nobody writes to take no memory.
    """

    def __init__(self, n_clients: int) -> None:
        self.n = n_clients
        # the number of each client's form, -1: no memory yet
        self.place = np.full(n_clients, -1, np.int32)
        self.forms: dict[Any, int] = {}
        self.stacks: dict[int, Any] = {}
        self.count: dict[int, int] = {}
        self.numbered = 0
        # all have such a record of arrays
        self.common: tuple[type, tuple[str, ...], list[NDArray[Any]]] | None = None

    def of(self, ids: NDArray[np.intp]) -> Any:
        """The memory of these clients, who have memories of one form."""
        if self.n == 1:
            return self.stacks[int(self.place[0])]
        if self.common is not None:
            return self.common[0](*[array.take(ids, 0) for array in self.common[2]])
        return mapped(self.stacks[int(self.place[ids[0]])], lambda array: array.take(ids, 0))

    def each(self) -> Sequence[Any]:
        """The memory of every client by itself, as rows of the arrays, or None."""
        if self.n >= MANY and self.common is not None:
            return Each(self.common[0], self.common[2])
        if self.common is not None:
            kind, _, arrays = self.common
            return tuple([kind(*[array[i : i + 1] for array in arrays]) for i in range(self.n)])
        stacks, arrays = [self.stacks.get(number) for number in self.place.tolist()], list[Any]()
        for stack in self.stacks.values():
            mapped(stack, lambda array: arrays.append(array) or array)
        if not arrays:  # all have the same memory
            return tuple(stacks)
        rows = [(stack, slice(i, i + 1)) for i, stack in enumerate(stacks)]
        return tuple(None if stack is None else members(stack, one) for stack, one in rows)

    def put(self, ids: NDArray[np.intp], memory: object) -> None:
        """Write the memories of these clients."""
        common = self.common is not None and type(memory) is self.common[0]
        if common and self._put_alike(ids, memory):
            return
        shape = form(memory)
        if (number := self.forms.get(shape)) is None:
            number = self.forms[shape] = self.numbered
            self.count[number], self.numbered = 0, self.numbered + 1
            if self.n > 1:
                room = lambda a: np.empty((self.n, *a.shape[1:]), a.dtype)  # noqa: E731
                self.stacks[number] = mapped(memory, room)
        if self.n > 1:
            _write(self.stacks[number], ids, memory)
        else:  # of a single client, perhaps large: as it is
            self.stacks[number] = settled(memory)
        for i in ids.tolist() if self.count[number] < self.n else ():
            if (old := int(self.place[i])) != number:
                self.place[i] = number
                self.count[number] += 1
                if old >= 0:
                    self._left(old)
        stack = self.stacks.get(number)
        fields = FIELDS.get(type(stack), ())
        parts = [getattr(stack, name) for name in fields]
        flat = bool(parts) and all(type(part) is np.ndarray for part in parts)
        whole = flat and self.count[number] == self.n > 1
        self.common = (type(stack), fields, parts) if whole else None

    def _put_alike(self, ids: NDArray[np.intp], memory: object) -> bool:
        """Write memories of the form that all memories have; False, and nothing written, where they
        are of another form.
        """
        _, names, arrays = self.common  # pyright: ignore[reportGeneralTypeIssues]
        new = [getattr(memory, name) for name in names]
        for array, value in zip(arrays, new, strict=True):
            if type(value) is not np.ndarray or value.dtype != array.dtype:
                return False
            if value.shape[1:] != array.shape[1:]:
                return False
        for array, value in zip(arrays, new, strict=True):
            array[ids] = value
        return True

    def _left(self, number: int) -> None:
        self.count[number] -= 1
        if not self.count[number]:
            del self.stacks[number], self.count[number]
            self.forms = {shape: known for shape, known in self.forms.items() if known != number}

    def stored(self) -> tuple[tuple[NDArray[np.intp], Any], ...]:
        """The pairs (clients, their memory) of all forms, for a checkpoint."""
        groups = ((np.flatnonzero(self.place == k), stack) for k, stack in self.stacks.items())
        return tuple((ids, members(stack, ids)) for ids, stack in groups)


def _write(stack: object, ids: NDArray[np.intp], memory: object) -> None:
    """Write a memory into the rows ``ids`` of every array of a stack of the same form."""
    if isinstance(stack, np.ndarray):
        stack[ids] = memory
    elif (fields := FIELDS.get(type(stack))) is not None:
        for name in fields:
            if type(part := getattr(stack, name)) is np.ndarray:
                part[ids] = getattr(memory, name)
            else:
                _write(part, ids, getattr(memory, name))
    elif isinstance(stack, tuple) and isinstance(memory, tuple):
        for part, new in zip(stack, memory, strict=True):
            _write(part, ids, new)
    elif isinstance(stack, dict) and isinstance(memory, dict):
        for key, part in stack.items():
            _write(part, ids, memory[key])


# What an engine needs to know of a federation, which no engine imports.


class Known(Protocol):
    """What an engine needs to know of any federation: its clients' names, and marks of their
    rows.
    """

    @property
    def clients(self) -> Sequence[Any]:
        """Names, whose order numbers the clients."""
        ...

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        ...

    @property
    def n_features(self) -> int:
        """The number of features of a row."""
        ...

    def digests(self) -> tuple[str, ...]:
        """One text for each client, which is another one if its data change."""
        ...


@runtime_checkable
class FederatedData(Known, Protocol):
    """What an engine needs of a federation whose rows are in this process."""

    def block(self, i: int) -> Block:
        """The rows of one client."""
        ...

    def blocks(self, size: int = 1024) -> list[Block]:
        """The rows of all clients, so many clients together at most."""
        ...


def rows_here(federation: Known) -> FederatedData:
    """The federation, where its rows are in this process; raises ``TypeError`` elsewhere."""
    if not isinstance(federation, FederatedData):
        raise TypeError(
            "this engine computes with the clients' rows itself, and they are at their owners:"
            " give the rows, or the engine that reaches the sites."
        )
    return federation
