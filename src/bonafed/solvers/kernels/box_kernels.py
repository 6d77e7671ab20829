"""The inner supremum of a Wasserstein worst case inside a box, row by row, for l2 and linf costs.

    reach(g; level) = max { <g, delta> - level ||delta|| : lower <= x + delta <= upper },
            g = w or -w

With room_j = upper_j - x_j (g_j > 0) or x_j - lower_j (g_j < 0), delta_j = sign(g_j) s_j and
  l2  s_j = min(|g_j| / sqrt(z), room_j), where sum_j min(g_j^2, room_j^2 z) = level^2 (concave in
  z: Newton from 0)
  linf  s_j = min(t, room_j), t the smallest number with sum of |g_j| over room_j > t at most level
  (weighted selection)
The value returned is that of the move returned, so it is attained whatever the accuracy of z or t.
"""

import math

import numpy as np
from numba import njit

L2, LINF = 2, 3
KINDS = {"l2": L2, "linf": LINF}


@njit(cache=True)
def _room(x, g, lower, upper, j):
    return max(upper[j] - x[j], 0.0) if g[j] > 0 else max(x[j] - lower[j], 0.0)


@njit(cache=True)
def _stretch(x, g, lower, upper, level):
    """1 / sqrt(z), how far coordinates go per unit of |g|.

    It is 0 when moving does not pay and inf when all coordinates reach their bounds.
    """
    z, clipped, total = -1.0, 0.0, 0.0
    for j in range(len(x)):
        if g[j] != 0.0:
            room = _room(x, g, lower, upper, j)
            clipped += room * room
            if room > 0.0:
                total += g[j] * g[j]
    if total <= level * level:
        return 0.0
    if level == 0.0:
        return math.inf
    free = 0.0
    for _ in range(100):
        new = (level * level - free) / clipped
        if new <= z * (1 + 1e-15):
            break
        z, clipped, free = new, 0.0, 0.0
        for j in range(len(x)):
            room = _room(x, g, lower, upper, j)
            if g[j] * g[j] > room * room * z:
                clipped += room * room
            else:
                free += g[j] * g[j]
        if clipped == 0.0:
            break
    return 1 / math.sqrt(z)


@njit(cache=True)
def _threshold(x, g, lower, upper, level, rooms, pulls, inner, outer):
    """T, the smallest t >= 0 with sum of |g_j| over room_j > t at most the level.

    It lies in [inner, outer].
    """
    count, total, beyond, pivot = 0, 0.0, 0.0, 0.0
    for j in range(len(x)):
        room = _room(x, g, lower, upper, j)
        if room > outer:
            beyond += abs(g[j])
        elif room > inner:
            rooms[count], pulls[count] = room, abs(g[j])
            total += abs(g[j])
            count += 1
    if beyond + total <= level:
        return inner
    if beyond > level:
        return outer
    start, stop = 0, count
    while stop > start:
        a, b, c = rooms[start], rooms[(start + stop) // 2], rooms[stop - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j, k = start, start, stop  # [start, i) above the pivot, [i, j) equal, [k, stop) below
        above, equal = 0.0, 0.0
        while j < k:
            if rooms[j] > pivot:
                above += pulls[j]
                rooms[i], rooms[j] = rooms[j], rooms[i]
                pulls[i], pulls[j] = pulls[j], pulls[i]
                i += 1
                j += 1
            elif rooms[j] == pivot:
                equal += pulls[j]
                j += 1
            else:
                k -= 1
                rooms[k], rooms[j] = rooms[j], rooms[k]
                pulls[k], pulls[j] = pulls[j], pulls[k]
        if beyond + above > level:
            stop = i
        elif beyond + above + equal > level:
            return pivot
        else:
            beyond += above + equal
            start = k
    return pivot


@njit(cache=True)
def _step(kind, extent, x, g, lower, upper, j):
    """|delta_j|."""
    if g[j] == 0.0 or extent == 0.0:
        return 0.0
    return min(abs(g[j]) * extent if kind == L2 else extent, _room(x, g, lower, upper, j))


@njit(cache=True)
def reach(kind, X, w, lower, upper, level, wanted, inner, outer):
    """Values and lengths of the best moves, (2, n, m) each: along -w in [0], along w in [1].

    Both are 0 where a move is not wanted.

    ``X`` (n, m, d), ``w`` (n, d), ``level`` (n,), ``wanted`` (2, n, m) bool; for linf the length is
    known to lie in [inner, outer], (2, n, m): it falls with the level, so those of other levels
    bound it.
    """
    n, m, d = X.shape
    gain, length = np.zeros((2, n, m)), np.zeros((2, n, m))
    rooms, pulls = np.empty(d), np.empty(d)
    for side in range(2):
        for i in range(n):
            g = (2 * side - 1) * w[i]
            for r in range(m):
                if not wanted[side, i, r]:
                    continue
                x = X[i, r]
                if kind == L2:
                    extent = _stretch(x, g, lower, upper, level[i])
                else:
                    known = inner[side, i, r], outer[side, i, r]
                    extent = _threshold(x, g, lower, upper, level[i], rooms, pulls, *known)
                if extent == 0.0:
                    continue
                won, square, longest = 0.0, 0.0, 0.0
                for j in range(d):
                    step = _step(kind, extent, x, g, lower, upper, j)
                    won += abs(g[j]) * step
                    square += step * step
                    longest = max(longest, step)
                size = math.sqrt(square) if kind == L2 else longest
                if won > level[i] * size:
                    gain[side, i, r], length[side, i, r] = won - level[i] * size, size
    return gain, length


@njit(cache=True)
def moves(kind, X, w, lower, upper, level, side, length):
    """The moves (n, m, d) with the lengths (n, m) that ``reach`` returned; level is (n, m).

    They go along w where ``side`` (n, m) is 1, along -w where -1. At a tie several lengths are
    best, so the one that was counted must be used, not computed again.
    """
    n, m, d = X.shape
    delta = np.zeros((n, m, d))
    for i in range(n):
        for r in range(m):
            if side[i, r] != 0:
                at = level[i, r], length[i, r]
                _add_move(kind, X[i, r], side[i, r] * w[i], lower, upper, at, 1.0, delta[i, r])
    return delta


@njit(cache=True)
def _add_move(kind, x, g, lower, upper, at, mass, total):
    """Add to total (d,) so much of the move of this (level, length)."""
    extent = _stretch(x, g, lower, upper, at[0]) if kind == L2 else at[1]
    for j in range(len(x)):
        step = _step(kind, extent, x, g, lower, upper, j)
        total[j] += mass * math.copysign(step, g[j])


@njit(cache=True)
def push(kind, X, w, lower, upper, level, side, length, mass):
    """The sum over rows of ``mass`` (n, m) times the moves, (n, d), without storing them."""
    n, m, d = X.shape
    total = np.zeros((n, d))
    for i in range(n):
        for r in range(m):
            if side[i, r] != 0 and mass[i, r] != 0:
                g, at = side[i, r] * w[i], (level[i, r], length[i, r])
                _add_move(kind, X[i, r], g, lower, upper, at, mass[i, r], total[i])
    return total
