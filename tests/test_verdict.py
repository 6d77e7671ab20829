"""The verdict in short: one comparison is described itself, several are counted."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.runs.comparison import verdict


def numbers(better: int, p: float, less: float, count: int) -> tuple[list[Any], list[Any]]:
    """Measures and pairs of one model with ``count`` others."""
    others = [f"other {k}" for k in range(count)]
    row = {"set": "held-out rows", "n": 20, "loss": 0.5, "accuracy": 0.8, "worst_accuracy": 0.7}
    measures = [{**row, "model": name} for name in ("DRFL", *others)]
    pair = {"set": "held-out rows", "model": "DRFL", "better": better, "worse": 1, "p": p}
    more = {"less": less, "margin": 0.1}
    return measures, [{**pair, **more, "other": name} for name in others]


@pytest.mark.parametrize(
    ("better", "p", "less", "answer", "said"),
    [
        (9, 0.01, 0.3, "Yes. ", "more often than chance would show; its mean loss was lower."),
        (9, 0.01, 0.0, "Yes. ", "its mean loss was not measurably different."),
        (0, 0.01, -0.3, "No, it hurt. ", "less often than chance would show; its mean loss was"),
        (9, 0.01, -0.3, "It depends. ", "more often than chance would show; its mean loss was h"),
        (2, 0.90, 0.0, "Not measurably. ", "neither more nor less often than chance would show"),
    ],
)
def test_one_comparison_is_described(
    better: int, p: float, less: float, answer: str, said: str
) -> None:
    headline = verdict(*numbers(better, p, less, 1))[0]
    assert headline.startswith(answer)
    assert said in headline
    assert "other" not in headline.replace("other 0", "")


def test_several_are_counted_and_the_others_named_where_there_are_some() -> None:
    measures, pairs = numbers(9, 0.01, 0.3, 2)
    assert verdict(measures, pairs)[0].startswith("Yes. ")
    assert "show no difference" not in verdict(measures, pairs)[0]
    pairs[1] |= {"p": 0.9, "less": 0.0}
    headline = verdict(measures, pairs)[0]
    assert headline.startswith("Yes, in part. ")
    assert headline.endswith("The other comparisons show no difference.")
