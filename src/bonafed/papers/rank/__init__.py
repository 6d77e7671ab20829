"""R. Xiao, Y. Ge, R. Jiang, Y. Yan, *A unified framework for rank-based loss minimization*.

A word for each method of its tables, with the constants of appendix B: `rank_admm` (Algorithm 1),
`smoothed_rank_admm` (section 4), and the baselines `sgd`, `lsvrg` and `dca`.
"""

from typing import Any

import bonafed as bf
import bonafed.extending as ext

PENALTY = {  # rho_k of Table 6, by framework
    "SRM": bf.Growing(1e-5, 1.2),
    "AoRR": bf.Growing(2e-7, 5.0, every=3, delay=7),
    "EHRM": bf.ByResidual(1e-4, 1.02, 1.07),
}
ITERATIONS, EPOCHS = 300, 2000
# outer and inner epochs of DCA, by loss and data set (Tables 8 and 9, C.2 for drawn ones)
DCA_EPOCHS = {
    "logistic": {"monks_3": (5, 2000), "drawn": (10, 2000), "others": (10, 1000)},
    "hinge": {"monks_3": (5, 1000), "australian": (5, 1000), "phoneme": (10, 500)}
    | {"titanic": (5, 500), "splice": (10, 1000), "drawn": (10, 2000)},
}


def rank_admm(framework: str = "SRM") -> bf.RankADMM:
    """Algorithm 1 as printed, for SRM, AoRR or EHRM: no relaxation, Newton steps or polish."""
    penalty = ext.entry(PENALTY, framework, "framework")
    plain: dict[str, Any] = {"relaxation": 1.0, "finish": False, "polish": False, "check": 10}
    plain |= {"max_rounds": ITERATIONS // 10, "max_iterations": ITERATIONS}
    return bf.RankADMM(penalty=penalty, starts=(bf.Start(penalty),), **plain)


def smoothed_rank_admm(framework: str = "SRM") -> bf.SmoothedRankADMM:
    """The algorithm of section 4, sADMM, with gamma_k = max(1e-5 0.9^k, 1e-9)."""
    settings: dict[str, Any] = {"penalty": ext.entry(PENALTY, framework, "framework"), "check": 10}
    return bf.SmoothedRankADMM(**settings, relaxation=1.0, max_rounds=ITERATIONS // 10)


def sgd() -> bf.SGD:
    """SGD with the best rate of the paper's grid."""
    return bf.SGD(batch=64, trial_epochs=EPOCHS, max_rounds=EPOCHS)


def lsvrg(uniform: bool = True) -> bf.LSVRG:
    """LSVRG(U), or LSVRG(NU) with ``uniform=False``, with the best rate of the paper's grid."""
    return bf.LSVRG(uniform=uniform, epoch_length=100, trial_epochs=EPOCHS, max_rounds=EPOCHS)


def dca(loss: str = "logistic", data: str = "monks_3") -> bf.DCA:
    """DCA with the epochs of Table 8 (logistic loss), 9 (hinge loss) or C.2 ("drawn")."""
    epochs = ext.entry(DCA_EPOCHS, loss, "loss")
    outer, inner = epochs.get(data, epochs.get("others")) or ext.entry(epochs, data, "data set")
    return bf.DCA(learning_rate=0.01, inner=inner, max_rounds=outer)
