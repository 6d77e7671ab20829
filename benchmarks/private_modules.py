"""A private torch network beside a private line where no line fits, and what batches do to bits.

    private_modules.py  test errors on a checkerboard within (2, 1e-5), three seeds; how many rows
                        have other last bits in batches of other sizes. No target.

Needs torch: pip install '.[torch]'. One thread.
"""

from __future__ import annotations

import time

import measure
import numpy as np
import torch

import bonafed as bf

ROWS, TEST, ROUNDS, HIDDEN = 500, 2000, 20, 12


def checkerboard(m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).uniform(-1, 1, (m, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)


def network(seed: int) -> bf.TorchPredictor:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(2, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1)
    return bf.TorchPredictor(torch.nn.Sequential(*layers).double(), device="cpu")


def errors() -> None:
    rows = []
    for seed in range(3):
        X, y = checkerboard(ROWS, seed)
        fed = bf.Federation.from_arrays(X, y, np.where(np.arange(ROWS) % 2, "a", "b"))
        test, truth = checkerboard(TEST, 100 + seed)
        budget = bf.Budget(epsilon=2.0, delta=1e-5)
        for predictor in (bf.Linear(), network(seed)):
            problem = bf.Problem(bf.Logistic(), predictor, privacy=budget)
            method = bf.PrivateSGD(max_rounds=ROUNDS, noise="simulation")
            began = time.process_time()
            found = bf.solve(problem, fed, algorithm=method, seed=seed)
            spent = time.process_time() - began
            if isinstance(predictor, bf.TorchPredictor):
                with torch.no_grad():
                    score = predictor.trained(found.w)(torch.tensor(test)).numpy()[:, 0]
            else:
                score = test @ found.w[:2] + found.w[2]
            wrong = 100 * float(((score > 0) != (truth > 0)).mean())
            name = "network" if isinstance(predictor, bf.TorchPredictor) else "line"
            rows.append((seed, name, wrong, found.ledger.epsilon, spent))
    measure.show("networks", ("seed", "model", "test error %", "epsilon", "CPU s"), rows)


def bits() -> None:
    """Rows of 37 features whose gradient has other bits than in a batch of 64 rows."""
    rows = []
    for kind in (torch.float32, torch.float64):
        torch.manual_seed(0)
        layers = torch.nn.Linear(37, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1)
        net = torch.nn.Sequential(*layers).to(kind)
        named = {name: value.detach() for name, value in net.named_parameters()}

        def loss(p: dict, x: torch.Tensor, net: torch.nn.Module = net) -> torch.Tensor:
            return torch.func.functional_call(net, p, (x[None],)).sum().tanh()

        def flat(X: torch.Tensor, p: dict = named, loss: object = loss) -> torch.Tensor:
            g = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(p, X)
            return torch.cat([part.reshape(len(X), -1) for part in g.values()], 1)

        X = torch.randn(64, 37, dtype=kind)
        whole, order = flat(X), torch.randperm(64)
        moved = int((whole[order] != flat(X[order])).any(1).sum())
        alone = torch.cat([flat(X[i : i + 1]) for i in range(64)])
        single = int((whole != alone).any(1).sum())
        shorter = sum(int((flat(X[:m]) != whole[:m]).any(1).sum()) for m in (3, 7, 33, 63))
        rows.append((str(kind), moved, single, shorter))
    columns = ("type", "in another order", "alone", "first 3, 7, 33 and 63, together")
    measure.show("bits", columns, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    errors()
    bits()
