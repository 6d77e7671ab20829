"""A compiled priority queue of the answers that are on their way, in the order of their arrival.

There is one entry per client, as no client is asked twice. ``heap[:size]`` holds the clients as a
binary heap, ordered by the time of arrival ``dues[:size]``, then by the number of the message.
"""

from __future__ import annotations

from numba import njit

from bonafed.arrays import INNER


@njit(cache=True)
def draw(ids, start, more, scale, drawn, chunk, used, delays):
    """Write the next delay of each client to ``delays`` and return the number of clients.

    Where a client's next delay is not drawn yet, nothing is written and the result is its position;
    the clients before ``start`` are not checked again.
    """
    length = drawn.shape[1]
    for p in range(start, len(ids)):
        if used[ids[p]] // length != chunk[ids[p]]:
            return p
    for p in range(len(ids)):
        i = ids[p]
        delays[p] = scale[i] * (drawn[i, used[i] % length] + more)
        used[i] += 1
    return len(ids)


@njit(cache=True)
def post(ids, arrival, now, first, heap, dues, size, due, number, begun):
    """Enter messages to these clients, numbered from ``first``, and return the queue's new size.

    A message with an infinite time of arrival is never answered.
    """
    for p in range(len(ids)):
        i = ids[p]
        due[i], number[i], begun[i] = arrival[p], first + p, now
        if arrival[p] < float("inf"):
            size = _up(heap, dues, size, i, arrival[p], number)
    return size


@njit(cache=True)
def put_back(ids, heap, dues, size, due, number):
    """Enter answers again that were taken, and return the queue's new size."""
    for p in range(len(ids)):
        size = _up(heap, dues, size, ids[p], due[ids[p]], number)
    return size


@njit(cache=True)
def take(count, must, left, heap, dues, size, number, begun, trip, taken, times, before):
    """Take at least ``count`` answers, the ``left`` marked in ``must`` among them, and return how
    many were taken.

    Their clients are written to ``taken``, the times of arrival to ``times``, the clients' trips so
    far to ``before``; ``trip`` becomes that of this answer.
    """
    total = 0
    while total < count or left > 0:
        i, due = heap[0], dues[0]
        size -= 1
        _down(heap, dues, size, number)
        taken[total], times[total], before[total] = i, due, trip[i]
        trip[i] = due - begun[i]
        total += 1
        if left > 0 and must[i]:
            left -= 1
    return total


@njit(cache=True, **INNER)
def _up(heap, dues, size, i, due, number):
    """Enter client i, whose answer arrives at ``due``."""
    place = size
    while place > 0:
        above = (place - 1) // 2
        if dues[above] < due or (dues[above] == due and number[heap[above]] < number[i]):
            break
        heap[place], dues[place] = heap[above], dues[above]
        place = above
    heap[place], dues[place] = i, due
    return size + 1


@njit(cache=True, **INNER)
def _down(heap, dues, size, number):
    """Remove the first entry: the last of ``heap[: size + 1]`` is entered in its place."""
    i, due, place = heap[size], dues[size], 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size:
            below += _sooner(below + 1, below, heap, dues, number)  # hard to foresee: no branch
        if due < dues[below] or (due == dues[below] and number[i] < number[heap[below]]):
            break
        heap[place], dues[place] = heap[below], dues[below]
        place = below
    if size > 0:
        heap[place], dues[place] = i, due


@njit(cache=True, **INNER)
def _sooner(a, b, heap, dues, number):
    if dues[a] == dues[b]:
        return number[heap[a]] < number[heap[b]]
    return dues[a] < dues[b]
