"""C = A B and C = C + A B for C of few columns, compiled for wide vector registers.

A library of linear algebra copies A and B into blocks before it multiplies. With some sixty columns
that is a third of its time and, worse, empties the cache of what the caller needs next. Here some
rows by one vector of C stay in registers while a row of B and a number of A for each meet them, and
nothing is copied.

In integers, an entry of A or B is a pair of numbers of 16 bits, and the product of two entries is
the sum of the two products: that is one instruction of most processors, and twice the work of one
in single precision. Sums of 32 bits are exact while they are below 2^31.
"""

# The types that llvmlite declares lack attributes and parameters that its classes have:
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportReturnType=false

from collections.abc import Callable, Sequence

from llvmlite import binding, ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

BYTES = 64  # of C at a time: the bytes of a row


def _rows() -> int:
    """How many rows of C stay in the registers of this machine.

    Without vectors of 64 bytes one row takes two of only sixteen registers, and eight rows would go
    through memory in every step. The number changes no bit: every entry is one separate sum.
    """
    try:
        return 8 if binding.get_host_cpu_features().get("avx512f") else 6
    except RuntimeError:  # the machine does not say
        return 6


ROWS = _rows()


class _Emitter:
    """The instructions for ``rows`` rows by one vector of C."""

    def __init__(self, context, builder, kinds, values, rows):
        self.builder, self.rows = builder, rows
        proxies = zip(map(cgutils.create_struct_proxy, kinds[:3]), values[:3], strict=True)
        self.A, self.B, self.C = (of(context, builder, value=value).data for of, value in proxies)
        self.size = kinds[0].dtype.bitwidth // 8
        self.lanes, self.pairs = BYTES // self.size, isinstance(kinds[0].dtype, types.Integer)
        self.vector = ir.VectorType(context.get_data_type(kinds[0].dtype), self.lanes)

    def place(self, data: ir.Value, start: ir.Value) -> ir.Value:
        """The address of the vector that begins at entry ``start``."""
        return self.builder.bitcast(self.builder.gep(data, [start]), self.vector.as_pointer())

    def loaded(self, place: ir.Value) -> ir.Value:
        """The vector at an address."""
        value = self.builder.load(place)
        value.align = self.size
        return value

    def spread(self, start: ir.Value) -> ir.Value:
        """A vector with one number of A in every lane."""
        step, nothing = self.builder, ir.Constant(self.vector, ir.Undefined)
        number = step.load(step.gep(self.A, [start]))
        first = step.insert_element(nothing, number, ir.IntType(32)(0))
        lanes = ir.VectorType(ir.IntType(32), self.lanes)
        return step.shuffle_vector(first, nothing, ir.Constant(lanes, None))

    def more(self, total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        """The total and the products of two vectors."""
        step = self.builder
        if not self.pairs:
            flags = ("contract",)
            return step.fadd(total, step.fmul(x, y, flags=flags), flags=flags)
        # LLVM knows this pattern: it is vpdpwssd, vpmaddwd and vpaddd, or what else there is
        half, whole = (ir.VectorType(ir.IntType(bits), 2 * self.lanes) for bits in (16, 32))
        one, other = (step.sext(step.bitcast(value, half), whole) for value in (x, y))
        each = step.mul(one, other)
        even, odd = (ir.Constant(self.vector, [*range(k, 2 * self.lanes, 2)]) for k in (0, 1))
        one, other = (step.shuffle_vector(each, each, lanes) for lanes in (even, odd))
        return step.add(total, step.add(one, other))

    def emit(self, numbers: Sequence[ir.Value]) -> None:
        """Write the loop over the rows of B, with the block of C in registers."""
        a, across, along, b, down, c, below, count, new = numbers
        step, zero = self.builder, ir.Constant(self.vector, None)
        starts = [step.add(a, step.mul(across, a.type(r))) for r in range(self.rows)]
        rows = [step.add(c, step.mul(below, c.type(r))) for r in range(self.rows)]
        places = [self.place(self.C, row) for row in rows]
        begun = (step.select(new, zero, self.loaded(place)) for place in places)
        sums = [cgutils.alloca_once_value(step, value) for value in begun]
        with cgutils.for_range(step, count) as loop:
            at = step.add(b, step.mul(loop.index, down))
            value = self.loaded(self.place(self.B, at))
            for start, total in zip(starts, sums, strict=True):
                x = self.spread(step.add(start, step.mul(loop.index, along)))
                step.store(self.more(step.load(total), x, value), total)
        for place, total in zip(places, sums, strict=True):
            step.store(step.load(total), place).align = self.size


def _block(rows: int) -> Callable[..., None]:
    @intrinsic
    def block(typing_context, A, B, C, a, across, along, b, down, c, below, count, new):
        """Add to a block of C the sum of A[a + r across + k along] B[b + k down ...] over k."""

        def code(context, builder, signature, values):
            _Emitter(context, builder, signature.args, values, rows).emit(values[3:])
            return context.get_dummy_value()

        return types.void(A, B, C, a, across, along, b, down, c, below, count, new), code

    return block


_several, _one = _block(ROWS), _block(1)


@njit(cache=True)
def multiply(A, start, across, along, B, C, shape, new):
    """Write A B into C, or C + A B where not ``new``; all three have one type, doubles, singles or
    integers of 32 bits, where A and B are of pairs.

    The columns of B and C are a multiple of the numbers in a vector: eight doubles, sixteen others.

    A begins at its entry ``start``, rows ``across`` and columns ``along`` entries apart, and B and
    C are contiguous: without slices the compiler needs a fraction of the time. ``shape`` is the
    rows of A, the rows of B and the columns of B. Every entry is a sum in the order of B's rows, so
    it does not depend on how many rows A has.
    """
    m, count, wide = shape
    row = 0
    while row < m:
        several = m - row >= ROWS
        if not several and new and m >= ROWS:
            # computing some rows twice is quicker than the last ones one by one
            row, several = m - ROWS, True
        for left in range(0, wide, BYTES // A.itemsize):
            first, of_C = start + row * across, row * wide + left
            at = first, across, along, left, wide, of_C, wide, count, new
            if several:
                _several(A, B, C, *at)
            else:
                _one(A, B, C, *at)
        row += ROWS if several else 1
