"""Figures as SVG: ticks are round, in order and apart, and what is drawn stands where its numbers
say.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.arrays import Array
from bonafed.report.canvas import LINE, LOG, SYMLOG, Axes, Axis, Canvas, shades, width_of

SVG = "{http://www.w3.org/2000/svg}"
WIDTH, HEIGHT = 331.2, 200.0


def drawn(canvas: Canvas) -> ET.Element:
    return ET.fromstring(canvas.svg("figure", "A <title>"))


def letters(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def number(text: str) -> float:
    return float(text.replace("−", "-"))


@given(
    kind=st.sampled_from(["linear", LOG, SYMLOG]),
    start=st.floats(-6, 6),
    spread=st.floats(1e-3, 1e4),
    length=st.floats(100, 300),
    across=st.booleans(),
    whole=st.booleans(),
)
def test_ticks_are_true_in_order_and_have_room(
    kind: str, start: float, spread: float, length: float, across: bool, whole: bool
) -> None:
    axis = Axis(across, kind, near=10.0 ** round(start), whole=whole)
    low, high = 10.0**start, 10.0**start * (1 + spread)
    ends = axis.limits(np.array([0.0 if kind == SYMLOG else low, high]), np.zeros(0))
    length *= 1 + across  # figures are wide
    ticks = axis.ticks(*ends, length)
    places = axis.scaled(np.array([value for value, _ in ticks]))
    assert (np.diff(places) > 0).all()
    assert (places >= ends[0] - 1e-6 * np.ptp(ends)).all()
    assert (places <= ends[1] + 1e-6 * np.ptp(ends)).all()
    for value, text in ticks:
        assert number(text) == pytest.approx(value, rel=6e-3, abs=1e-12)
        assert not (whole and kind == "linear") or value == round(value)
    if len(ticks) > 1:
        room = [width_of(text) if across else LINE for _, text in ticks]
        assert np.diff(places).min() * length / np.ptp(ends) >= max(room)


def test_a_line_stands_where_its_numbers_say_and_breaks_where_one_is_missing() -> None:
    canvas = Canvas(WIDTH, HEIGHT)
    axes = canvas.one()
    x, y = np.arange(5.0), np.array([1.0, 3.0, math.nan, 2.0, 4.0])
    axes.plot(x, y, color="#123456", label="<one>")
    axes.axhline(2.0, color="#654321")
    axes.name("x & y", "up")
    axes.legend()
    root = drawn(canvas)
    assert {"<one>", "x & y", "up", "1.0", "4.0"} <= {*letters(root)}
    line, level = (path(root, colour) for colour in ("#123456", "#654321"))
    assert [len(part) for part in line] == [2, 2]
    across, up = np.concatenate(line).T
    assert np.allclose(np.diff(across), (across[1] - across[0]) * np.array([1, 2, 1]), atol=0.03)
    at = np.interp([1.0, 3.0, 2.0, 4.0], [1.0, 4.0], [up[0], up[3]])
    assert np.allclose(up, at, atol=0.02)
    assert np.ptp(level[0][:, 0]) > np.ptp(across)
    assert 0 < up.min() < up.max() < HEIGHT


def path(root: ET.Element, colour: str) -> list[Array]:
    """The points of the parts of the first line of a colour."""
    found = next(p for p in root.iter(f"{SVG}path") if p.get("stroke") == colour and p.get("d"))
    inside = [g for g in root.iter(f"{SVG}g") for p in g if p.get("stroke") == colour]
    text = inside[0][0].get("d") if inside else found.get("d")
    parts = [part for part in (text or "").split("M") if part]
    return [np.array([point.split() for point in part.split("L")], float) for part in parts]


def test_bars_begin_at_the_axis_and_names_have_room() -> None:
    canvas = Canvas(WIDTH, HEIGHT)
    axes = canvas.one()
    names = ["W" * 18, "a", "病院病院"]
    places = axes.named_rows(names)
    axes.barh(places, [3.0, 1.0, 2.0], 0.5, color="#123456", label="rows")
    axes.legend()
    root = drawn(canvas)
    bars = [p.get("d") or "" for p in root.iter(f"{SVG}path") if p.get("fill") == "#123456"]
    starts = {re.match(r"M([\d.]+) ", bar)[1] for bar in bars[:3]}  # pyright: ignore
    assert len(bars) == 4
    assert len(starts) == 1
    (left,) = map(float, starts)
    assert width_of(names[0]) < left
    assert [text for text in letters(root) if text in names] == names


@pytest.mark.parametrize("corner", ["", "best", "lower right"])
@pytest.mark.parametrize("scale", ["linear", LOG, SYMLOG])
def test_nothing_at_all_and_single_points_are_drawn(corner: str, scale: str) -> None:
    for values in ([], [math.nan], [0.0], [2.0], [math.nan, 1e-300], [-1e9, 1e9]):
        canvas = Canvas(WIDTH, HEIGHT)
        for axes in canvas.two():
            fill(axes, np.array(values), scale, corner)
        assert not re.search(r"nan|inf", canvas.svg("figure", "title"))
        drawn(canvas)


def fill(axes: Axes, values: Array, scale: str, corner: str) -> None:
    axes.yaxis.kind = scale
    axes.plot(np.arange(len(values)), values, color="red", markersize=3, label="line")
    axes.scatter(np.arange(len(values)), values, s=20, color="red", marker="x", label="dots")
    axes.legend(corner=corner)


def test_colours_of_many_differ() -> None:
    for n in range(1, 12):
        assert len({*shades(n)}) == min(n, 12)
        assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in shades(n))
