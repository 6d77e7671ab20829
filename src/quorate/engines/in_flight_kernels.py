"""The books of messages in flight, compiled: who was sent which, and what everybody has exchanged
(``Flight``).

``free[:free[-1]]`` is a stack of slots in which no message is.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def asked(to, now, size, kind, since, slots, received, left, kinds, free):
    """A message of so many bytes to each of these clients; its slot, or -1 and nothing done if one
    may not be asked.
    """
    slot = free[free[-1] - 1]
    for p in range(len(to)):
        i = to[p]
        if i < 0 or i >= len(since) or since[i] >= 0:
            for q in range(p):
                since[to[q]] = -1
                received[to[q]] -= size
            return -1
        since[i] = now
        slots[i] = slot
        received[i] += size
    if len(to) > 0:
        left[slot] = len(to)
        kinds[slot] = kind
        free[-1] -= 1
    return slot


@njit(cache=True)
def unasked(to, slot, size, since, received, left, free):
    """As before the message in this slot, the latest."""
    for p in range(len(to)):
        since[to[p]] = -1
        received[to[p]] -= size
    if len(to) > 0:
        left[slot] = 0
        free[-1] += 1


@njit(cache=True)
def together(arrived, since, slots, kinds, place, sort):
    """(clients ascending, the oldest's round, whether they are of one kind of message, of memory
    and of rows).
    """
    ids = np.sort(arrived)
    first, oldest, alike = ids[0], since[ids[0]], True
    for p in range(1, len(ids)):
        i = ids[p]
        oldest = min(oldest, since[i])
        alike &= (
            kinds[slots[i]] == kinds[slots[first]]
            and place[i] == place[first]
            and sort[i] == sort[first]
        )
    return ids, oldest, alike


@njit(cache=True)
def settle(ids, size, given, turns, since, slots, left, kinds, free, over):
    """Answers of so many bytes from each of these clients; how many single messages ``over`` lists
    as answered.
    """
    found = 0
    for p in range(len(ids)):
        i = ids[p]
        slot = slots[i]
        given[i] += size
        turns[i] += 1
        since[i] = -1
        left[slot] -= 1
        if left[slot] == 0:
            free[free[-1]] = slot
            free[-1] += 1
            if kinds[slot] < 0:
                over[found] = kinds[slot]
                found += 1
    return found
