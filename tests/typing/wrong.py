"""A program with a mistake in every line that is marked; mypy and pyright must refuse each,
or pyright where mypy cannot.

A mark that is not needed is an error itself, so that this file passes where all are refused.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import bonafed as bf

bf.LpBall(radius="x", nonsense=1)  # type: ignore
bf.LpBall(0.1, prior="sizes")  # type: ignore
bf.Huber(threshold="2")  # type: ignore
bf.RankedRange(3, 1, order="up")  # type: ignore
# scikit-learn has no types, and mypy lets a dataclass on such a base take any name
bf.RobustClassifier(nonsense=3)  # pyright: ignore
bf.Bundle(speed=3)  # type: ignore
bf.RobustClassifier(radius="much")  # type: ignore
bf.ConstrainedClassifier(constraint=bf.Hinge())  # type: ignore
bf.RiskClassifier(regulariser=0.1)  # type: ignore
bf.group_rates(1, 2, 3, positive=[1])  # type: ignore
_ = bf.NoSuchThing  # type: ignore
