"""Answers on their way in the order in which they will arrive, compiled: one entry a client, nobody is asked twice.

``heap[:size]`` holds clients, a binary heap by (due, number): the time of arrival, then the number of the message.
"""

from __future__ import annotations

from numba import njit


@njit(cache=True)
def draw(ids, start, more, scale, drawn, chunk, made, delays):
    """The next delay of each client, into ``delays``; or the first position from ``start`` where none is drawn yet."""
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
def post(ids, arrival, now, first, heap, size, due, number, begun):
    """Messages to these clients, numbered from ``first``; those with an infinite arrival are never answered."""
    for p in range(len(ids)):
        i = ids[p]
        due[i], number[i], begun[i] = arrival[p], first + p, now
        if arrival[p] < float("inf"):
            size = _up(heap, size, i, due, number)
    return size


@njit(cache=True)
def put_back(ids, heap, size, due, number):
    """Answers that were taken are on their way again."""
    for p in range(len(ids)):
        size = _up(heap, size, ids[p], due, number)
    return size


@njit(cache=True)
def take(count, must, left, heap, size, due, number, taken):
    """At least ``count`` answers into ``taken``, the ``left`` marked in ``must`` among them; how many there are."""
    found = 0
    while found < count or left > 0:
        i = heap[0]
        size -= 1
        _down(heap, size, heap[size], due, number)
        taken[found] = i
        found += 1
        if left > 0 and must[i]:
            left -= 1
    return found


@njit(cache=True)
def _sooner(i, j, due, number):
    return due[i] < due[j] or (due[i] == due[j] and number[i] < number[j])


@njit(cache=True)
def _up(heap, size, i, due, number):
    """Add client i."""
    at = size
    while at > 0:
        above = (at - 1) // 2
        if not _sooner(i, heap[above], due, number):
            break
        heap[at] = heap[above]
        at = above
    heap[at] = i
    return size + 1


@njit(cache=True)
def _down(heap, size, i, due, number):
    """Client i takes the place of the first of ``heap[:size]``."""
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and _sooner(heap[below + 1], heap[below], due, number):
            below += 1
        if not _sooner(heap[below], i, due, number):
            break
        heap[at] = heap[below]
        at = below
    if size > 0:
        heap[at] = i
