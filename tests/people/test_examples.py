"""The table of what people met: `python tests/met.py` prints it."""

from __future__ import annotations

import met


def test_every_relative_is_one_of_an_example_that_was_reported() -> None:
    examples = [one for one, _ in met.every()]
    known = met.relatives(examples)
    related = [one for several in known.values() for one in several]
    assert [one for one in examples if one.relative_of and related.count(one) != 1] == []
    assert {one.kind for one in examples} == set("ABCDEF")
