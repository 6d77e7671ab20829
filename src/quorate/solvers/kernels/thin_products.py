"""C = A B and C = C + A B for C of few columns, compiled for wide vector registers.

A library of linear algebra copies A and B into blocks before it multiplies. With some sixty columns
that is a third of its time and, worse, empties the cache of what the caller needs next. Here 6 rows
by 4 vectors of C stay in registers while a row of B and six numbers of A meet them, and nothing is
copied.
"""

# The types that llvmlite declares lack attributes and parameters that its classes have:
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import binding, ir
from numba import njit
from numba.core import cgutils, types
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

ROWS, VECTORS, BYTES = 6, 4, 64  # of C at a time: rows, vectors of a row, bytes of a vector
NARROW = 8  # rows of C at a time where they are one vector wide


def _wide_registers() -> bool:
    try:
        return bool(binding.get_host_cpu_features().get("avx512f"))
    except RuntimeError:  # unknown processor
        return False


SUITED = _wide_registers()  # without them the results are right, but a library is faster


class _Emitter:
    """The instructions for ``rows`` rows by ``vectors`` vectors of C."""

    def __init__(
        self,
        context: BaseContext,
        builder: ir.IRBuilder,
        kinds: Sequence[types.Array],
        values: Sequence[ir.Value],
        rows: int,
        vectors: int,
    ) -> None:
        self.builder, self.rows, self.vectors = builder, rows, vectors
        self.A, self.B, self.C = (
            cgutils.create_struct_proxy(kind)(context, builder, value=value).data
            for kind, value in zip(kinds[:3], values[:3], strict=True)
        )
        self.size = kinds[0].dtype.bitwidth // 8
        self.lanes = BYTES // self.size
        self.vector = ir.VectorType(context.get_data_type(kinds[0].dtype), self.lanes)

    def places(self, data: ir.Value, start: ir.Value) -> list[ir.Value]:
        """The addresses of the vectors that begin at entry ``start``."""
        step, to = self.builder, self.vector.as_pointer()
        at = [step.add(start, start.type(k * self.lanes)) for k in range(self.vectors)]
        return [step.bitcast(step.gep(data, [k]), to) for k in at]

    def loaded(self, place: ir.Value) -> ir.Value:
        """The vector at an address."""
        value = self.builder.load(place)
        value.align = self.size
        return value

    def spread(self, start: ir.Value) -> ir.Value:
        """A vector with one number of A in every lane."""
        step, nothing = self.builder, ir.Constant(self.vector, ir.Undefined)
        first = step.insert_element(
            nothing, step.load(step.gep(self.A, [start])), ir.IntType(32)(0)
        )
        return step.shuffle_vector(
            first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), None)
        )

    def emit(self, numbers: Sequence[ir.Value]) -> None:
        """Write the loop over the rows of B, with the block of C in registers."""
        a, across, along, b, down, c, below, count, new = numbers
        step, zero = self.builder, ir.Constant(self.vector, None)
        starts = [step.add(a, step.mul(across, a.type(r))) for r in range(self.rows)]
        places = [
            self.places(self.C, step.add(c, step.mul(below, c.type(r)))) for r in range(self.rows)
        ]
        sums = [
            [
                cgutils.alloca_once_value(step, step.select(new, zero, self.loaded(place)))
                for place in row
            ]
            for row in places
        ]
        with cgutils.for_range(step, count) as loop:
            values = [
                self.loaded(place)
                for place in self.places(self.B, step.add(b, step.mul(loop.index, down)))
            ]
            for start, row in zip(starts, sums, strict=True):
                x = self.spread(step.add(start, step.mul(loop.index, along)))
                for total, value in zip(row, values, strict=True):
                    more = step.fmul(x, value, flags=("contract",))
                    step.store(step.fadd(step.load(total), more, flags=("contract",)), total)
        for row, total in zip(places, sums, strict=True):
            for place, value in zip(row, total, strict=True):
                step.store(step.load(value), place).align = self.size


def _block(rows: int, vectors: int) -> Callable[..., None]:
    @intrinsic
    def block(typing_context, A, B, C, a, across, along, b, down, c, below, count, new):
        """Add to a block of C the sum of A[a + r across + k along] B[b + k down ...] over k."""

        def code(
            context: BaseContext,
            builder: ir.IRBuilder,
            signature: Signature,
            values: Sequence[ir.Value],
        ) -> ir.Value:
            _Emitter(context, builder, signature.args, values, rows, vectors).emit(values[3:])
            return context.get_dummy_value()

        return types.void(A, B, C, a, across, along, b, down, c, below, count, new), code

    return block


_several, _one = _block(ROWS, VECTORS), _block(1, VECTORS)
_narrow, _narrow_one = _block(NARROW, 1), _block(1, 1)


@njit(cache=True)
def columns(size):
    """C has a multiple of so many columns; ``size`` is the bytes of a number."""
    return VECTORS * BYTES // size


@njit(cache=True)
def multiply(A, B, C, new):
    """Write A B into C (m, columns), or C + A B where not ``new``; A may be a transpose.

    All three have one precision.

    As many columns as C has are read from every row of B. Where B has fewer, these are the
    beginning of its next row: the caller must provide one, and ignore the columns beyond those of
    B.
    """
    m, count = A.shape
    size = A.itemsize
    across, along, down, wide = (
        A.strides[0] // size,
        A.strides[1] // size,
        B.strides[0] // size,
        C.shape[1],
    )
    row = 0
    while row < m:
        several = m - row >= ROWS
        for left in range(0, wide, columns(size)):
            at = row * across, across, along, left, down, row * wide + left, wide, count, new
            if several:
                _several(A, B, C, *at)
            else:
                _one(A, B, C, *at)
        row += ROWS if several else 1


@njit(cache=True)
def multiply_narrow(A, start, across, along, B, C, shape, new):
    """``multiply`` of doubles for B and C of few columns, a multiple of eight, quick to compile.

    A begins at its entry ``start``, rows ``across`` and columns ``along`` entries apart, and B and
    C are contiguous: without slices the compiler needs a fraction of the time. ``shape`` is the
    rows of A, the rows of B and the columns of B. Every entry is a sum in the order of B's rows, so
    it does not depend on how many rows A has.
    """
    m, count, wide = shape
    row = 0
    while row < m:
        several = m - row >= NARROW
        if not several and new and m >= NARROW:
            # computing some rows twice is quicker than the last ones one by one
            row, several = m - NARROW, True
        for left in range(0, wide, 8):
            at = (
                start + row * across,
                across,
                along,
                left,
                wide,
                row * wide + left,
                wide,
                count,
                new,
            )
            if several:
                _narrow(A, B, C, *at)
            else:
                _narrow_one(A, B, C, *at)
        row += NARROW if several else 1
