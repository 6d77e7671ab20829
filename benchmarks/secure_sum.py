"""The secure sum: bytes and CPU seconds of a client and round, set-up and drop-outs apart.

    secure_sum.py           N = 10, 100, 1,000 clients, 7,840 numbers each; one thread
    secure_sum.py --quick   N = 10 and 100

Every client is simulated in full; figures of clients are means over all of them.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import Any

import measure
import numpy as np

from quorate.codec import encoded_size
from quorate.privacy.secure_sum import client as at_client
from quorate.privacy.secure_sum import server as at_server
from quorate.privacy.secure_sum import wide as pairs
from quorate.privacy.secure_sum.messages import terms

WORDS = 7840


def run(n: int, dropped: int, wide: bool = False) -> dict[str, Any]:
    """CPU seconds and bytes by step; ``dropped`` clients share, and hand in no vector. ``wide``:
    numbers of 128 bits instead of 64.
    """
    seconds: dict[str, float] = defaultdict(float)
    size: dict[str, int] = defaultdict(int)

    def timed(step: str, function: Any, *given: Any) -> Any:
        began = time.process_time()
        result = function(*given)
        seconds[step] += time.process_time() - began
        return result

    agreed, clients = terms("benchmark", n), {}
    x = np.random.default_rng(0).integers(-(2**40), 2**40, (n, WORDS))
    words = [pairs.of_whole(row) if wide else row for row in x]

    def ask(step: str, name: str, function: Any, who: range, *given: Any) -> list[Any]:
        answers = []
        for i in who:
            own = [g[i] if isinstance(g, dict | list) else g for g in given]
            clients[i], answer = timed(step, function, clients[i], *own)
            size[f"{name} up"] += encoded_size(answer)
            size[f"{name} down"] += encoded_size(own[0])
            answers.append(answer)
        return answers

    keys = []
    for i in range(n):
        clients[i], key = timed("set-up", at_client.advertise, agreed, i)
        keys.append(key)
    server, roster = at_server.enrol(agreed, keys)
    for i in range(n):
        clients[i] = timed("set-up", at_client.agree, clients[i], roster)
    size["set-up up"], size["set-up down"] = n * encoded_size(keys[0]), n * encoded_size(roster)
    every, stay = range(n), range(dropped, n)
    server, begin = at_server.begin(server, 1)
    shares = ask("share", "round", at_client.share, every, begin)
    server, delivered = timed("server", at_server.deliver, server, shares)
    masked = ask("mask", "round", at_client.mask, stay, delivered, words, wide)
    server, unmask = timed("server", at_server.unmask, server, masked)
    revealed = ask("reveal", "round", at_client.reveal, stay, unmask)
    _, total = timed("server", at_server.total, server, revealed)
    assert np.array_equal(total[:: 1 + wide], x[dropped:].sum(0))
    return {
        **{k: v if k == "server" else v / n for k, v in seconds.items()},
        **{k: v / n for k, v in size.items()},
    }


def main() -> None:
    print(measure.machine("cryptography"))
    run(3, 1)  # compiles
    rows = []
    for n in (10, 100) if "--quick" in sys.argv else (10, 100, 1000):
        whole = run(n, 0)
        lost, doubles = run(n, n // 3), run(n, 0, wide=True)
        ms = [f"{1e3 * whole[k]:.2f}" for k in ("set-up", "share", "mask", "reveal")]
        ms += [f"{1e3 * doubles['mask']:.2f}"]
        kb = [f"{whole[k] / 1e3:.1f}" for k in ("set-up up", "set-up down", "round up")]
        down, server, more = whole["round down"], whole["server"], lost["server"] - whole["server"]
        rows.append([n, *ms, *kb, f"{down / 1e3:.1f}", f"{server:.3f}", f"{more:.3f}"])
    columns = ["clients", "set-up ms", "share ms", "mask ms", "reveal ms", "mask ms, 128 bits"]
    columns += ["set-up kB up"]
    columns += [
        "set-up kB down",
        "round kB up",
        "round kB down",
        "server s",
        "a third lost: s more",
    ]
    print(measure.table(columns, rows))


if __name__ == "__main__":
    main()
