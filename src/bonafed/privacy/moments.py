"""What private intervals are computed from: the numbers that a run has released, and how much noise
each has, which is public.
"""

from typing import Annotated

from bonafed.arrays import Array
from bonafed.codec import Form, record


@record
class Moments:
    """Means over the last rounds of a private run, and the standard deviations of their noise.

    Attributes
    ----------
    matrix : (D, D) the mean curvature of the rows' losses, summed over all clients
    away : (D,) from the mean of the models at which the answers were taken to the estimate
    spread : the mean over these models of (w_t - w)' matrix (w_t - w)
    square : the mean squared residual; nan where none was asked for
    rows : one over the weight of a row in all these sums: the public number of rows
    over : the share of the rows that some bound shortens, with noise
    gradient_noise, matrix_noise, square_noise, over_noise : the standard deviations of the noise in
        a coordinate of the mean gradient, in an entry on the diagonal of the matrix (others have
        the root of a half of it), in ``square`` and in ``over``
    """

    matrix: Annotated[Array, Form("D, D")]
    away: Annotated[Array, Form("D")]
    spread: float
    square: Annotated[float, Form(nan=True)]
    rows: float
    over: float
    gradient_noise: float
    matrix_noise: float
    square_noise: float
    over_noise: float
