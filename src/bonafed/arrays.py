"""Arrays, norms, random streams and the block: the foundation of all other files.

A *block* holds the rows of n clients. Its leading axis is the client, its second the row; clients
are padded to the longest one, and padding carries no weight: the mean of client i is ``(block.share
* losses).sum(1)[i]``.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from numbers import Real
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.client_names import ClientName

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Entries = tuple[Index, Index, Array]  # of a matrix: rows, columns and values
# parts of a symmetric matrix, which add up: rows, and the diagonal or all of the matrix there
Curves = Sequence[tuple[Index, Array]]
AnyArray = TypeVar("AnyArray", bound=NDArray[Any])
# numba's options of functions that compiled ones alone call, a sixth to a third less to compile;
# a call from Python ends the process
INNER: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
PART = 2**19  # numbers of a table that are copied at a time
BAND = 64  # columns of a matrix that are mirrored at a time


class Sparse(Protocol):
    """A matrix of scipy.sparse, of any of its formats."""

    def tocsr(self) -> Any: ...


Label = bool | int | float | str | np.generic  # a class or a group, as in the data
Features = ArrayLike | Sparse  # rows as a user states them: an array, a table or a sparse matrix

DUAL = {"l1": "linf", "l2": "l2", "linf": "l1"}


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number, inf and nan included, and neither text nor True."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def has_truths(values: object) -> bool:
    """Whether a list of numbers holds True or False, which NumPy converts to 1 and 0."""
    listed = values if isinstance(values, list | tuple) else ()
    return any(isinstance(value, bool | np.bool_) for value in listed)


def norm(v: Array, kind: str) -> Array:
    """``||v||`` along the last axis; kind is "l1", "l2" or "linf"."""
    if kind == "l1":
        return np.abs(v).sum(-1)
    if kind == "l2":
        return np.sqrt((v * v).sum(-1))
    return np.abs(v).max(-1, initial=0.0)


def norm_gradient(v: Array, kind: str) -> Array:
    """A subgradient of ``||v||`` along the last axis, zero at v = 0.

    For linf it is at the first largest entry.
    """
    if kind == "l1":
        return np.sign(v)
    if kind == "l2":
        return v / np.maximum(np.sqrt((v * v).sum(-1, keepdims=True)), np.finfo(float).tiny)
    at = np.abs(v).argmax(-1)[..., None]
    gradient = np.zeros_like(v)
    np.put_along_axis(gradient, at, np.sign(np.take_along_axis(v, at, -1)), -1)
    return gradient


def stream(seed: int, client: ClientName, turn: int) -> np.random.Generator:
    """The counter-based random stream of one client at one turn.

    Adding a client does not change the numbers of the others.
    """
    bits = np.random.Philox(key=stream_key(seed, client), counter=[0, 0, 0, turn])
    return np.random.Generator(bits)


def stream_key(seed: int, client: ClientName, person: bytes = b"") -> NDArray[np.uint64]:
    """(2,) the key of a client's streams; of other streams for another ``person``."""
    data = f"{seed}/{client}".encode()
    return np.frombuffer(hashlib.blake2b(data, digest_size=16, person=person).digest(), np.uint64)


class OneStream(threading.local):
    """One random generator per thread, which is set to the stream that is needed: making one takes
    several times as long.
    """

    def __init__(self) -> None:
        self.bits = np.random.Philox(0)
        self.draws = np.random.Generator(self.bits)
        self.place: dict[str, Any] = {}
        unused: Any = {"buffer": (0, 0, 0, 0), "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}
        self.begun = unused | {"bit_generator": "Philox", "state": self.place}

    def at(self, key: NDArray[np.uint64], turn: int) -> np.random.Generator:
        """The generator of one stream, until the next call."""
        self.place.update(counter=(0, 0, 0, turn), key=key)
        self.bits.state = self.begun
        return self.draws


ONE_STREAM = OneStream()


def shape_of(X: "Array | csr_array") -> tuple[int, int]:
    """(rows, features) of a matrix, dense or sparse."""
    shape = X.shape
    assert shape is not None  # as the types of scipy have it
    return shape[0], shape[1]


def dense(X: "Array | csr_array") -> Array:
    """X, made dense if it is sparse."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def compact(v: Array) -> Array:
    """v for compiled code: contiguous, aligned and in double precision.

    It is a copy only where v is not so already.
    """
    v = np.ascontiguousarray(v, np.float64)
    return v if v.flags.aligned else v.copy()


def writable(v: AnyArray) -> AnyArray:
    """v, or a copy of it where v is read-only.

    Without this numba compiles a second version for read-only arrays, and its last bits can differ.
    """
    return v if v.flags.writeable else v.copy()


def unwritable(v: AnyArray) -> AnyArray:
    """A read-only view of v.

    Kernels for arrays too large to copy are compiled for read-only ones, to the same end as
    ``writable``.
    """
    view = v.view()
    view.flags.writeable = False
    return view


class Slices(Sequence[Any]):
    """One array per client, which are rows of one array, client after client.

    Very many small clients are held so: an item is a view that is made when it is asked for.

    Attributes
    ----------
    whole : (n, ...) the rows of all clients
    cuts : (N + 1,) where the rows of each client begin, and n
    """

    __slots__ = ("cuts", "whole")

    def __init__(self, whole: NDArray[Any], cuts: NDArray[np.intp]) -> None:
        self.whole, self.cuts = whole, cuts

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return tuple(self[k] for k in range(*i.indices(len(self))))
        k = range(len(self))[i]
        return self.whole[self.cuts[k] : self.cuts[k + 1]]

    def __iter__(self) -> Iterator[Any]:
        for start, end in pairwise(self.cuts.tolist()):
            yield self.whole[start:end]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """(N,) rows of each client."""
        return np.diff(self.cuts)

    def of(self, whole: NDArray[Any]) -> "Slices":
        """Other values of the same rows."""
        return Slices(whole, self.cuts)

    def reduced(self, by: np.ufunc, values: NDArray[Any] | None = None) -> NDArray[Any]:
        """(N,) the values of each client's rows, reduced; without ``values`` all numbers in them.
        No client is without rows.
        """
        whole = self.whole if values is None else values
        width = math.prod(whole.shape[1:])
        return by.reduceat(whole.reshape(-1), self.cuts[:-1] * width)


# clients from which on their arrays are slices of one, and bytes of an array that is copied for it
MANY, SMALL = 100, 2**12


def in_one(parts: Sequence[Any]) -> Sequence[Any]:
    """The arrays of many clients as slices of one, where they lie in it one after the other, or
    are small, and are then copied; else as they are.
    """
    if len(parts) < MANY or isinstance(parts, Slices):
        return parts if len(parts) >= MANY else tuple(parts)
    first = parts[0]
    if not (isinstance(first, np.ndarray) and first.ndim):
        return tuple(parts)
    kinds = {(type(p), getattr(p, "dtype", 0), np.ndim(p), np.shape(p)[1:]) for p in parts}
    if kinds != {(np.ndarray, first.dtype, first.ndim, first.shape[1:])}:
        return tuple(parts)
    cuts = np.zeros(len(parts) + 1, np.intp)
    np.cumsum([len(part) for part in parts], out=cuts[1:])
    if (whole := adjoining(parts)) is not None:
        return Slices(whole, cuts)
    if cuts[-1] * first.itemsize * math.prod(first.shape[1:]) <= len(parts) * SMALL:
        return Slices(np.concatenate(parts), cuts)
    return tuple(parts)


def adjoining(parts: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The rows of arrays of one kind that lie in one array one after the other, else None."""
    first = parts[0]
    base, shape = first.base, first.shape[1:]
    width = first.itemsize * math.prod(shape)
    if not (isinstance(base, np.ndarray) and width and len(first)):
        return None
    here = first.__array_interface__["data"][0]
    for part in parts:
        place = part.__array_interface__["data"][0]
        if part.base is not base or not part.flags.c_contiguous or place != here:
            return None
        here += len(part) * width
    strides = tuple(np.empty((1, *shape), first.dtype).strides)
    rows = sum(len(part) for part in parts)
    return np.lib.stride_tricks.as_strided(first, (rows, *shape), strides)


def joined(parts: Sequence[Any]) -> NDArray[Any]:
    """The rows of all clients under one another, not copied where they are slices of one array."""
    return parts.whole if isinstance(parts, Slices) else np.concatenate(parts)


def each_changed(change: Callable[[Any], Any], parts: Sequence[Any]) -> Sequence[Any]:
    """The arrays of all clients with every row changed, by a function of rows."""
    if isinstance(parts, Slices):
        return parts.of(change(parts.whole))
    return tuple(map(change, parts))


def by_row(weights: Array, values: Array) -> Array:
    """weights (n, m) times values (n, m), or (n, m, C) with C numbers a row."""
    return weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim)) * values


def _square(rows: Array, roots: Array, one: bool) -> Array:
    """The sum of x x' times the squares of ``roots`` (m, 1) over rows (m, d), which end in a 1 with
    ``one``: of few rows at a time, which are copied, into one half of one matrix.
    """
    d, size = rows.shape[1] + one, max(PART // (rows.shape[1] + one), 1)
    part = np.empty((min(size, len(rows)), d))

    def scaled(at: int) -> Array:
        here = part[: len(roots[at : at + size])]
        np.multiply(rows[at : at + size], roots[at : at + size], out=here[:, : d - one])
        here[:, d - one :] = roots[at : at + size]
        return here

    if len(rows) <= size:
        return scaled(0).T @ part  # of which BLAS computes one half
    from scipy.linalg import get_blas_funcs

    syrk: Any = get_blas_funcs("syrk")
    total = np.zeros((d, d), order="F")
    for at in range(0, len(rows), size):
        total = syrk(1.0, scaled(at).T, beta=1.0, c=total, overwrite_c=1)
    for at in range(0, d, BAND):  # mirrored in its place
        end = at + BAND
        total[end:, at:end] = total[at:end, end:].T
        band = np.triu(total[at:end, at:end])
        total[at:end, at:end] = band + np.triu(band, 1).T
    return total.T


# position in the block -> that client's stream at this turn
Streams = Callable[[int], np.random.Generator]


@dataclass(frozen=True, eq=False)
class Block:
    """The rows of n clients.

    Attributes
    ----------
    X : (n, m, d) array, or a CSR matrix (n m, d) with the clients' rows under one another
    y : (n, m) targets, whose meaning depends on the loss (-1/+1, a number, a class index)
    share : (n, m) weight of each row inside its client: 1/N_i (or normalised sample weights), 0 on
        padding
    index : (n,) the clients' positions in the federation
    names : the clients' names
    columns : further per-row columns (n, m), such as a sensitive attribute
    linear : each client's linear constraints (C, d) of shapes (n, k, d) and (n, k), with rows of
        zeros where it has fewer; None without any
    """

    X: "Array | csr_array"
    y: Array
    share: Array
    index: NDArray[np.intp]
    names: tuple[ClientName, ...]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    linear: tuple[Array, Array] | None = None

    def part(self, positions: NDArray[np.intp]) -> "Block":
        """The block of some of the clients."""
        if len(positions) == len(self.names):
            return self
        columns = {key: column.take(positions, 0) for key, column in self.columns.items()}
        if isinstance(self.X, np.ndarray):
            X = self.X.take(positions, 0)  # which is quicker than indexing
        else:
            m = self.y.shape[1]
            X = self.X[(positions[:, None] * m + np.arange(m)).ravel()]
        y, share = self.y.take(positions, 0), self.share.take(positions, 0)
        linear = self.linear and (self.linear[0][positions], self.linear[1][positions])
        names = (self.names[positions[0]],)
        if len(positions) > 1:
            names = itemgetter(*positions.tolist())(self.names)
        return Block(X, y, share, self.index.take(positions, 0), names, columns, linear)

    @property
    def n_features(self) -> int:
        """The number of features, d."""
        shape: Any = self.X.shape
        return int(shape[-1])

    def rows(self, i: int) -> "Array | csr_array":
        """The rows (m, d) of client i of the block, padding included."""
        if isinstance(self.X, np.ndarray):
            return self.X[i]
        m = self.y.shape[1]
        return self.X if len(self.y) == 1 else self.X[i * m : (i + 1) * m]

    @cached_property
    def apart(self) -> "csr_array":
        """Sparse rows as a block diagonal matrix (n m, n d) with a block for each client."""
        X: Any = self.X
        n, d = len(self.y), self.n_features
        if n == 1:
            return X
        from scipy.sparse import csr_array

        each = np.diff(X.indptr[:: self.y.shape[1]])
        kind = X.indices.dtype if n * d < 2**31 else np.int64
        columns = X.indices + np.repeat(np.arange(0, n * d, d, dtype=kind), each)
        return csr_array((X.data, columns, X.indptr), shape=(X.shape[0], n * d))

    @cached_property
    def across(self) -> Any:
        """The transpose of ``apart``, which SciPy else makes anew for each product."""
        return self.apart.T

    @cached_property
    def joined(self) -> "Block":
        """All rows, and padding, as those of one client: for sums over the block."""
        X = self.X.reshape(1, -1, self.n_features) if isinstance(self.X, np.ndarray) else self.X
        columns = {key: column.reshape(1, -1) for key, column in self.columns.items()}
        y, share = self.y.reshape(1, -1), self.share.reshape(1, -1)
        return Block(X, y, share, self.index[:1], self.names[:1], columns)

    def forward(self, w: Array) -> Array:
        """``X w`` as (n, m); w is (d,), shared by the block, or (n, d), one per client."""
        if not isinstance(self.X, np.ndarray):
            product = self.X @ w if w.ndim == 1 else self.apart @ w.ravel()
            return np.asarray(product).reshape(self.y.shape)
        if w.ndim == 1:
            return (self.X.reshape(-1, self.X.shape[-1]) @ w).reshape(self.y.shape)
        return np.matmul(self.X, w[:, :, None])[:, :, 0]

    def backward(self, s: Array) -> Array:
        """``X' s`` as (n, d) for s (n, m)."""
        if not isinstance(self.X, np.ndarray):
            return np.asarray(self.across @ s.ravel()).reshape(len(s), -1)
        return np.matmul(s[:, None, :], self.X)[:, 0, :]

    def gram(self, s: Array, one: bool = False) -> Array:
        """``sum_i X_i' diag(s_i) X_i`` as (d, d) for s (n, m), summed over the block; with ``one``
        rows end in a 1.
        """
        if not isinstance(self.X, np.ndarray):
            square = (self.X.T @ self.X.multiply(s.reshape(-1, 1))).toarray()
        else:
            rows = self.X.reshape(-1, self.n_features)
            if s.min(initial=0.0) >= 0:
                return _square(rows, np.sqrt(s.reshape(-1, 1)), one)
            square = rows.T @ (rows * s.reshape(-1, 1))
        if not one:
            return square
        edge = self.backward(s).sum(0)
        return np.block([[square, edge[:, None]], [edge[None, :], np.array([[s.sum()]])]])

    def grams(self, s: Array) -> Array:
        """``X_i' diag(s_i) X_i`` of every client, (n, d, d), for s (n, m)."""
        if not isinstance(self.X, np.ndarray):
            rows: Any = [(self.rows(i), mine[:, None]) for i, mine in enumerate(s)]
            return np.stack([(X.T @ X.multiply(mine)).toarray() for X, mine in rows])
        return np.matmul((self.X * s[:, :, None]).transpose(0, 2, 1), self.X)

    def longest(self) -> Array:
        """``max_i ||x_i||_2`` of every client, (n,)."""
        if not isinstance(self.X, np.ndarray):
            squares = np.asarray(self.X.power(2).sum(1)).reshape(self.y.shape)
            return np.sqrt(squares).max(1)
        return np.sqrt(np.einsum("nmd,nmd->nm", self.X, self.X)).max(1)

    def squares(self) -> Array:
        """Each client's mean of x_j^2 over its rows, (n, d)."""
        if self.y.shape[1] <= 4:  # as quick as a copy
            return self._mean_squares()
        return self._squares.copy()

    @cached_property
    def _squares(self) -> Array:
        return self._mean_squares()

    def _mean_squares(self) -> Array:
        if not isinstance(self.X, np.ndarray):
            return np.asarray(self.across.power(2) @ self.share.ravel()).reshape(len(self.y), -1)
        return np.einsum("nm,nmd,nmd->nd", self.share, self.X, self.X)

    def square_sum(self, weights: Array) -> Array:
        """The clients' ``squares`` times their weights (n,), as (n, d); of sparse rows, which have
        fewer entries than that, the sum over the clients, (1, d).
        """
        if isinstance(self.X, np.ndarray):
            return weights[:, None] * self.squares()
        return np.asarray(self.X.power(2).T @ (weights[:, None] * self.share).ravel())[None]

    def mean(self, losses: Array) -> Array:
        """Each client's mean of (n, m) losses, as (n,)."""
        return (self.share * losses).sum(1)
