"""The algorithms as they travel between the server and its sites."""

from __future__ import annotations

from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.certificates.certify import ROUNDS
from bonafed.codec import CodecError
from bonafed.engines.secure_summed import SecureSummed
from bonafed.names import NAMED, of_place
from bonafed.privacy.secure_sum.messages import SecureSum
from bonafed.rounds import Algorithm
from bonafed.sites.judging import Judging
from bonafed.statements import stated, statement_bytes

# beside the public ones: the rounds of certificates and of judging, the plan of a private method
# (which is public, and which a site computes again before it goes by it), and what carries any of
# them with secure sums, where the bundle is another
ALLOWED = (*ROUNDS, Judging, Mechanism, SecureSummed, SecureSum, MaskedBundle)

# A process that begins in the middle of a run, as every one of Flower's does, is asked with a
# message and finds a memory whose classes nothing else has imported.
for _place in NAMED["algorithm"].values():
    of_place(_place)


def method_bytes(algorithm: Algorithm) -> bytes:
    """The statement of an algorithm as the sites need it."""
    return statement_bytes(algorithm.for_clients(), allowed=ALLOWED)


def method_of(statement: bytes) -> Algorithm:
    """The algorithm of a statement; ``CodecError`` for one of anything else."""
    algorithm = stated(statement, object, allowed=ALLOWED)
    if not isinstance(algorithm, Algorithm):
        raise CodecError(f"the statement is of a {type(algorithm).__name__}, and of no algorithm")
    return algorithm
