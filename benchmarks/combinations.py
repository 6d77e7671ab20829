"""The table of docs/combinations.md: which algorithm takes which problems, read off the classes.

``python benchmarks/combinations.py`` prints it.
"""

from __future__ import annotations

from textwrap import wrap

from bonafed.algorithms.alternatives import known_methods

HEADINGS = {
    "over_clients": "risk over clients",
    "over_samples": "risk over samples",
    "over_rows": "risk over all rows",
    "loss": "loss",
    "predictor": "predictions",
    "regulariser": "regulariser",
    "constraint": "constraints",
    "privacy": "privacy",
    "clients": "clients",
    "rows": "weights of rows",
    "engine": "engine",
}
INTRODUCTION = """# Combinations

This page says which algorithm takes which problem. Every algorithm declares what it requires of
each slot of a problem (`requirements` on its class); `solve`, the configuration file and this table
read the same declarations. Where no algorithm is named, `solve` takes the first that is suitable
(`bonafed.solution.plan`).

This page is written by `python benchmarks/combinations.py > docs/combinations.md`.
"""

REASONS = {  # of convex problems that no algorithm takes: what is refused, and why
    "a `WassersteinBall` with `Squared`, `Exponential` or `Poisson`": (
        "these losses grow faster than the distance that a ball pays for, so that their worst case"
        " is infinite at every radius above 0."
    ),
    "a support with `Logistic`, `SmoothHinge`, `Huber` or `Multinomial`": (
        "the worst case would be the maximum of a curved convex function over a polytope, which is"
        " at a corner, and there are exponentially many."
    ),
    "`Sign`, `Monotone` and `CostLimit` with `Multinomial`": (
        "a number may be added to the coefficients of all classes without another prediction, so"
        " that their signs, order and sums mean nothing; `LinearInequality` bounds differences."
    ),
    "`DemographicParity` with `Multinomial`": (
        "a number may be added to the scores of all classes without another prediction, so that"
        " their means mean nothing; `BoundedGroupLoss` bounds losses."
    ),
    "`NeymanPearson`, `EqualisedOdds` and `Mean(label=...)` without classes": (
        "there are no rows of a class where targets are numbers; `EqualisedOdds` bounds scores,"
        " which say nothing of several classes."
    ),
    "losses of rows, ranks of rows and a `WassersteinBall` with `Quadratic`": (
        "a client of `Quadratic` has a matrix and no rows."
    ),
    "`over_rows` beside `over_clients` or `over_samples`": (
        "the objective is one ranking of all rows, in which clients have no separate risk."
    ),
    "`over_rows` of many steps, such as `Extremile(2)`, with kinked losses or constraints": (
        "every rank then needs a separate threshold, and the server's program is as large as the"
        " table of all rows; up to 24 steps are taken."
    ),
    "a custom set of client weights with neither `project` nor a maximiser": (
        "without one of them no weights of the set can be computed that prove a bound."
    ),
}
CONVEX = """
## Convex problems that are refused

Every other pair of a convex loss, a convex risk over clients, over samples or over the rows of all
clients, and a convex constraint is solved, and proved to a relative gap of 1e-6
(`tests/algorithms/test_bundle_limits.py` compares all of them with central conic programs).

"""


def page() -> str:
    """The page in Markdown: one row per algorithm, one column per slot, and what is refused."""
    lines = ["| algorithm | " + " | ".join(HEADINGS.values()) + " |"]
    lines.append("|---" * (len(HEADINGS) + 1) + "|")
    for cls in known_methods():
        cells = [getattr(cls.requirements, slot).label for slot in HEADINGS]
        lines.append(f"| `{cls.__name__}` | " + " | ".join(cells) + " |")
    reasons = [
        "\n".join(wrap(f"- {what[0].upper()}{what[1:]}: {why}", 100, subsequent_indent="  "))
        for what, why in REASONS.items()
    ]
    return INTRODUCTION + "\n" + "\n".join(lines) + "\n" + CONVEX + "\n".join(reasons) + "\n"


if __name__ == "__main__":
    print(page(), end="")
