"""The secure sum: bytes and CPU seconds of a client and round, set-up and drop-outs apart.

    secure_sum.py           N = 10, 100, 1,000 clients, 7,840 numbers each; one thread
    secure_sum.py --quick   N = 10 and 100

Every client is simulated in full; figures of clients are means over all of them. A thousand clients
take a few minutes.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import Any

import measure
import numpy as np

from bonafed.codec import encoded_size
from bonafed.privacy.secure_sum import masking
from bonafed.privacy.secure_sum import protocol as at_client
from bonafed.privacy.secure_sum import protocol as at_server
from bonafed.privacy.secure_sum.messages import terms

WORDS = 7840


class Clients:
    """All clients of a run with keys agreed on, and their server."""

    def __init__(self, n: int) -> None:
        agreed, self.clients, keys = terms("benchmark", n), {}, []
        self.n, self.number = n, 0
        began = time.process_time()
        for i in range(n):
            self.clients[i], key = at_client.advertise(agreed, i)
            keys.append(key)
        self.server, roster = at_server.enrol(agreed, keys)
        for i in range(n):
            self.clients[i] = at_client.agree(self.clients[i], roster)
        self.seconds = (time.process_time() - began) / n
        self.up, self.down = encoded_size(keys[0]), encoded_size(roster)

    def round(self, dropped: int, wide: bool = False) -> dict[str, Any]:
        """CPU seconds and bytes of a round by step; ``dropped`` clients share, and hand in no
        vector. ``wide``: numbers of 128 bits instead of 64.
        """
        seconds: dict[str, float] = defaultdict(float)
        size: dict[str, int] = defaultdict(int)

        def timed(step: str, function: Any, *given: Any) -> Any:
            began = time.process_time()
            result = function(*given)
            seconds[step] += time.process_time() - began
            return result

        def ask(step: str, function: Any, who: range, *given: Any) -> list[Any]:
            answers = []
            for i in who:
                own = [g[i] if isinstance(g, dict | list) else g for g in given]
                self.clients[i], answer = timed(step, function, self.clients[i], *own)
                size["up"] += encoded_size(answer)
                size["down"] += encoded_size(own[0])
                answers.append(answer)
            return answers

        self.number += 1
        x = np.random.default_rng(self.number).integers(-(2**40), 2**40, (self.n, WORDS))
        words = [masking.of_whole(row) if wide else row for row in x]
        every, stay = range(self.n), range(dropped, self.n)
        server, begin = at_server.begin(self.server, self.number)
        shares = ask("share", at_client.share, every, begin)
        server, delivered = timed("server", at_server.deliver, server, shares)
        masked = ask("mask", at_client.mask, stay, delivered, words, wide)
        server, unmask = timed("server", at_server.unmask, server, masked)
        revealed = ask("reveal", at_client.reveal, stay, unmask)
        self.server, total = timed("server", at_server.total, server, revealed)
        assert np.array_equal(total[:: 1 + wide], x[dropped:].sum(0))
        return {
            **{k: v if k == "server" else v / self.n for k, v in seconds.items()},
            **{k: v / self.n for k, v in size.items()},
        }


def main() -> None:
    print(measure.machine("cryptography"))
    few = Clients(3)
    few.round(1), few.round(0, wide=True)  # compiles
    rows = []
    for n in (10, 100) if "--quick" in sys.argv else (10, 100, 1000):
        clients = Clients(n)
        print(f"{n} clients have keys", flush=True)
        whole, lost, doubles = clients.round(0), clients.round(n // 3), clients.round(0, wide=True)
        ms = [clients.seconds, whole["share"], whole["mask"], whole["reveal"], doubles["mask"]]
        kb = [clients.up, clients.down, whole["up"], whole["down"]]
        server, more = whole["server"], lost["server"] - whole["server"]
        rows.append(
            [
                n,
                *(f"{1e3 * each:.2f}" for each in ms),
                *(f"{each / 1e3:.1f}" for each in kb),
                f"{server:.3f}",
                f"{more:.3f}",
            ]
        )
    columns = ["clients", "set-up ms", "share ms", "mask ms", "reveal ms", "mask ms, 128 bits"]
    columns += ["set-up kB up", "set-up kB down", "round kB up", "round kB down"]
    measure.show("secure sum", [*columns, "server s", "a third lost: s more"], rows)


if __name__ == "__main__":
    main()
