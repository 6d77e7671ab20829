"""The report of a run on a simulated clock: times, answers, planes, spread over clients; safe
whatever names are.
"""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_run

from bonafed.engines.run_record import Log
from bonafed.report import tables
from bonafed.report.blocks import placed
from bonafed.report.pages import markdown, render
from bonafed.report.sections import certificate, evaluation
from bonafed.report.sections.certificate import about_clock, windows
from bonafed.runs.folder import Run

HOSTILE = ('<script>alert("x")</script>', "a]]>&amp;'$x$ | b", "South")
CRASH = small_run.CLOCK.replace(
    "stragglers = { East = 10.0 }", "stragglers = { East = 10.0 }\ncrashes = { North = 12.0 }"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run.small_run(tmp_path_factory.mktemp("clock"), draw=True, text=small_run.CLOCK)


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """ASPIRE, and names that want to be tags."""
    text = small_run.CLOCK.replace("East", "South").replace(
        'name = "auto"\ntol = 1e-2', 'name = "aspire"\nmax_rounds = 300'
    )
    return small_run.small_run(
        tmp_path_factory.mktemp("planes"),
        draw=True,
        text=text,
        data=small_run.table(clinics=HOSTILE),
    )


def html(run: Run) -> str:
    return (run.path / "report.html").read_text("utf-8")


def test_the_page_says_what_time_passed_and_who_answered(run: Run) -> None:
    page, result = html(run), run.result
    assert f"took {result['clock']['time']:.4g} virtual seconds" in page
    assert f"{result['clock']['answers']:,} answers" in page
    assert f"East {result['clock']['by_client']['East']}" in page
    assert "wait for the first answer" in page
    assert {f.stem for f in (run.path / "figures").iterdir()} >= {
        "reached",
        "active",
        "clients",
        "weights",
        "traffic",
    }
    assert not {"convergence", "planes"} & {f.stem for f in (run.path / "figures").iterdir()}
    assert page == render(run)["report.html"]  # the same bytes again


def test_when_the_worst_client_was_near_its_last_loss(run: Run) -> None:
    """By hand from the curve: from then on every look is within 1 %."""
    rows = {row[0]: row for row in certificate.pace(run.result)[0].rows}
    for name, curve in run.result["reached"].items():
        losses = np.array(curve["largest_risk"])
        bad = np.flatnonzero(losses > 1.01 * losses[-1])
        first = 0 if not len(bad) else bad[-1] + 1
        assert rows[name][-1] == tables.number(curve["time"][first])
        assert rows[name][1] == tables.number(curve["time"][-1])


def test_the_spread_over_clients_is_that_of_their_numbers(run: Run) -> None:
    (found,) = evaluation.spread(run.result)
    for row in run.result["evaluation"]["measures"]:
        (cells,) = [cells for cells in found.rows if cells[0] == row["model"]]
        accuracy = np.array([client["accuracy"] for client in row["clients"]])
        loss = np.array([client["loss"] for client in row["clients"]])
        percents = [f"{100 * v:.1f} %" for v in (accuracy.min(), accuracy.mean(), accuracy.std())]
        assert list(cells[1:]) == [
            *percents,
            *(f"{v:.4g}" for v in (loss.max(), loss.mean(), loss.std())),
        ]
    assert found.title in html(run)
    assert found.markdown() in markdown(run)
    assert certificate.pace(run.result)[0].markdown() in markdown(run)


def test_windows_count_who_answered() -> None:
    rng = np.random.default_rng(3)
    times = np.sort(rng.uniform(0, 10, 300))
    who = rng.integers(0, 5, 300)
    log = Log(("a", "b", "c", "d", "e"), 0, 64, who.astype(np.int32), times, np.arange(1, 301))
    edges, distinct = windows(log)
    for k in range(len(distinct)):
        inside = (times > edges[k]) & (times <= edges[k + 1])
        assert distinct[k] == len(set(who[inside].tolist()))


def test_planes_are_drawn_and_names_are_text(planes: Run) -> None:
    page = html(planes)
    assert (planes.path / "figures" / "planes.svg").is_file()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    for file in (planes.path / "figures").iterdir():
        ET.fromstring(file.read_text("utf-8"))
    ids = Counter(re.findall(r'\bid="([^"]+)"', page))
    assert max(ids.values()) == 1


def test_who_crashed_is_said(tmp_path: Path) -> None:
    text = CRASH.replace('compare_with = ["erm"]', "compare_with = []").replace(
        "tol = 1e-2", "max_rounds = 40"
    )
    run = small_run.small_run(tmp_path, text=text)
    assert run.result["clock"]["crashed"] == {"North": 12.0}
    assert "North at 12 virtual seconds" in " ".join(
        certificate.time_in_words(run.result, run.config.engine)
    )


def test_runs_side_by_side_with_and_without_a_clock(run: Run, tmp_path: Path) -> None:
    other = small_run.small_run(tmp_path, text=small_run.MIXED)
    rows = {
        row[0]: row for row in tables.compared({"clock": run.result, "plain": other.result}).rows
    }
    assert rows["virtual seconds"] == (
        "virtual seconds",
        tables.number(run.result["clock"]["time"]),
        "–",
    )
    assert rows["answers"][1] == tables.number(run.result["clock"]["answers"])
    alone = tables.compared({"a": other.result, "b": other.result})
    assert "virtual seconds" not in {row[0] for row in alone.rows}


def test_a_method_that_does_not_know_its_objective_is_drawn_where_it_was_looked_at(
    tmp_path: Path,
) -> None:
    """AsyncDRO in process: no clock, but the exact objective by round."""
    run = small_run.small_run(
        tmp_path, draw=True, text=small_run.MIXED.replace('"auto"', '"async_dro"')
    )
    assert "clock" not in run.result
    assert {"convergence", "traffic"} <= {f.stem for f in (run.path / "figures").iterdir()}
    assert "virtual" not in html(run)


def test_figures_without_data_are_left_out(run: Run) -> None:
    result = {key: value for key, value in run.result.items() if key != "reached"}
    assert drawn(replace(run, result=result, history=[], events=None)) == set()
    assert drawn(replace(run, events=None)) == {"reached"}


def drawn(run: Run) -> set[str]:
    """The names of the figures about the clock."""
    section = about_clock(run)
    assert section is not None
    places = placed(section.chapters[0].blocks)
    return {figure.name for figure in places if figure.plot is not None}
