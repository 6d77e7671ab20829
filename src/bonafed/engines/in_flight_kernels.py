"""Compiled updates of the tables of ``Flight``: which client was sent which message, and how many
bytes every client has exchanged.

``free[:free[-1]]`` is a stack of slots in which no message is.
"""

from __future__ import annotations

from numba import njit


@njit(cache=True)
def asked(to, now, size, kind, since, slots, message_bytes, left, kinds, free):
    """Note a message of ``size`` bytes to each of these clients and return its slot.

    Where one of them may not be asked, nothing changes and the result is -1.
    """
    slot = free[free[-1] - 1]
    for p in range(len(to)):
        i = to[p]
        if i < 0 or i >= len(since) or since[i] >= 0:
            for q in range(p):
                since[to[q]] = -1
                message_bytes[to[q]] -= size
            return -1
        since[i] = now
        slots[i] = slot
        message_bytes[i] += size
    if len(to) > 0:
        left[slot] = len(to)
        kinds[slot] = kind
        free[-1] -= 1
    return slot


@njit(cache=True)
def unasked(to, slot, size, since, message_bytes, left, free):
    """Take back the latest message, which is in this slot."""
    for p in range(len(to)):
        since[to[p]] = -1
        message_bytes[to[p]] -= size
    if len(to) > 0:
        left[slot] = 0
        free[-1] += 1


@njit(cache=True)
def together(ids, since, slots, kinds, place, sort):
    """(round of the oldest message, whether all are of one kind of message, of memory and of
    rows).
    """
    first, oldest, alike = ids[0], since[ids[0]], True
    for p in range(1, len(ids)):
        i = ids[p]
        oldest = min(oldest, since[i])
        alike &= (
            kinds[slots[i]] == kinds[slots[first]]
            and place[i] == place[first]
            and sort[i] == sort[first]
        )
    return oldest, alike


@njit(cache=True)
def settle(ids, size, answer_bytes, turns, since, slots, left, kinds, free, finished):
    """Note an answer of ``size`` bytes from each of these clients.

    The numbers of the single messages that are answered now are written to ``finished``; the result
    is how many these are.
    """
    ended = 0
    for p in range(len(ids)):
        i = ids[p]
        slot = slots[i]
        answer_bytes[i] += size
        turns[i] += 1
        since[i] = -1
        left[slot] -= 1
        if left[slot] == 0:
            free[free[-1]] = slot
            free[-1] += 1
            if kinds[slot] < 0:
                finished[ended] = kinds[slot]
                ended += 1
    return ended
