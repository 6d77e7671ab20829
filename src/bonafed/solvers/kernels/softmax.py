"""The multinomial logistic loss of many rows and its gradient in one pass over their predictions.

log sum_c exp(p_c) - p_y        and        exp(p) / sum_c exp(p_c) - e_y
"""

import numpy as np
from numba import njit


@njit(cache=True, error_model="numpy")
def losses_and_gradients(prediction, y):
    """(R,) and (R, C) for predictions (R, C) and classes (R,)."""
    rows, classes = prediction.shape
    losses, gradients = np.empty(rows), np.empty((rows, classes))
    for i in range(rows):
        top = prediction[i, 0]
        for c in range(1, classes):
            top = max(top, prediction[i, c])
        total = 0.0
        for c in range(classes):
            gradients[i, c] = np.exp(prediction[i, c] - top)
            total += gradients[i, c]
        label = int(y[i])
        losses[i] = np.log(total) + (top - prediction[i, label])
        for c in range(classes):
            gradients[i, c] /= total
        gradients[i, label] -= 1.0
    return losses, gradients
