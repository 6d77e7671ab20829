"""Answers on their way in the order in which they will arrive, compiled: one entry a client, nobody
is asked twice.

``heap[:size]`` holds clients, a binary heap by the time of arrival, ``dues[:size]``, then by the
number of the message.
"""

from __future__ import annotations

from numba import njit


@njit(cache=True)
def draw(ids, start, more, scale, drawn, chunk, made, delays):
    """The next delay of each client, into ``delays``; or the first position from ``start`` where
    none is drawn yet.
    """
    length = drawn.shape[1]
    for p in range(start, len(ids)):
        if made[ids[p]] // length != chunk[ids[p]]:
            return p
    for p in range(len(ids)):
        i = ids[p]
        delays[p] = scale[i] * (drawn[i, made[i] % length] + more)
        made[i] += 1
    return len(ids)


@njit(cache=True)
def post(ids, arrival, now, first, heap, dues, size, due, number, begun):
    """Messages to these clients, numbered from ``first``; those with an infinite arrival are never
    answered.
    """
    for p in range(len(ids)):
        i = ids[p]
        due[i], number[i], begun[i] = arrival[p], first + p, now
        if arrival[p] < float("inf"):
            size = _up(heap, dues, size, i, arrival[p], number)
    return size


@njit(cache=True)
def put_back(ids, heap, dues, size, due, number):
    """Answers that were taken are on their way again."""
    for p in range(len(ids)):
        size = _up(heap, dues, size, ids[p], due[ids[p]], number)
    return size


@njit(cache=True)
def take(count, must, left, heap, dues, size, number, begun, trip, taken, times, before):
    """At least ``count`` answers into ``taken``, the ``left`` marked in ``must`` among them; how
    many there are.

    ``times``: when they arrive; ``trip`` of these clients is now that of this answer, and was
    ``before``.
    """
    found = 0
    while found < count or left > 0:
        i, due = heap[0], dues[0]
        size -= 1
        _down(heap, dues, size, number)
        taken[found], times[found], before[found] = i, due, trip[i]
        trip[i] = due - begun[i]
        found += 1
        if left > 0 and must[i]:
            left -= 1
    return found


@njit(cache=True)
def _up(heap, dues, size, i, due, number):
    """Add client i, whose answer arrives at ``due``."""
    at = size
    while at > 0:
        above = (at - 1) // 2
        if dues[above] < due or (dues[above] == due and number[heap[above]] < number[i]):
            break
        heap[at], dues[at] = heap[above], dues[above]
        at = above
    heap[at], dues[at] = i, due
    return size + 1


@njit(cache=True)
def _down(heap, dues, size, number):
    """The last of ``heap[: size + 1]`` takes the place of the first."""
    i, due, at = heap[size], dues[size], 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size:
            below += _sooner(below + 1, below, heap, dues, number)  # hard to foresee: no branch
        if due < dues[below] or (due == dues[below] and number[i] < number[heap[below]]):
            break
        heap[at], dues[at] = heap[below], dues[below]
        at = below
    if size > 0:
        heap[at], dues[at] = i, due


@njit(cache=True)
def _sooner(a, b, heap, dues, number):
    if dues[a] == dues[b]:
        return number[heap[a]] < number[heap[b]]
    return dues[a] < dues[b]
