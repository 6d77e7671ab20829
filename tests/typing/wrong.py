"""A program with a mistake in every line that is marked; mypy and pyright must refuse each.

A mark that is not needed is an error itself, so that this file passes where all are refused.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import quorate as qr

qr.LpBall(radius="x", nonsense=1)  # type: ignore
qr.LpBall(0.1, prior="sizes")  # type: ignore
qr.Huber(threshold="2")  # type: ignore
qr.RankedRange(3, 1, order="up")  # type: ignore
qr.RobustClassifier(nonsense=3)  # type: ignore
qr.Bundle(speed=3)  # type: ignore
qr.RobustClassifier(radius="much")  # type: ignore
qr.ConstrainedClassifier(constraint=qr.Hinge())  # type: ignore
qr.RiskClassifier(regulariser=0.1)  # type: ignore
qr.group_rates(1, 2, 3, positive=[1])  # type: ignore
_ = qr.NoSuchThing  # type: ignore
