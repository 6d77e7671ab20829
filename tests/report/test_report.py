"""The report: self-contained, the same bytes each time, harmless whatever clients are called, and
seen in a browser.
"""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import small_run
from report.browser import browse, cut, needs_browser

from bonafed.drawing import column, label
from bonafed.report import tables, words
from bonafed.report.pages import figures, markdown, page, render
from bonafed.report.sections import sweep
from bonafed.report.sections.clients import prior_of
from bonafed.report.terminal import show_exposed
from bonafed.runs.folder import Run

HOSTILE = (
    '<script>alert("x")</script>',
    "a]]>&amp;'$x^{2}$ ![i](http://e.xx/i.png) | b",
    "病院\x07\u202e \U0001f3e5" + "y" * 60,
)
TEXT = small_run.CONFIG.replace('"South"', '"Sud"').replace("clinics", "<b>T</b> & clinics", 1)
PATH = small_run.sweep("robust.radius", 0.0, 0.02, 0.3)
SWEPT = {"sweep_value", "sweep_loss", "sweep_judged", "sweep_rate"}
FETCHING = {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run.small_run(tmp_path_factory.mktemp("plain"), draw=True)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Clients with names that want to be tags, tables, formulas and links."""
    data = small_run.table(clinics=(*HOSTILE, "Sud"))
    return small_run.small_run(
        tmp_path_factory.mktemp("hostile"), draw=True, data=data, text=TEXT + PATH
    )


class Page(HTMLParser):
    """Tags, their attributes, and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data.replace("\N{NO-BREAK SPACE}", " "))


def read(run: Run) -> Page:
    return Page((run.path / "report.html").read_text("utf-8"))


# ------------------------------------------------------------------------------------ what it holds


def test_it_holds_the_numbers_of_the_run(plain: Run) -> None:
    text = " ".join(read(plain).texts)
    certificate = plain.result["certificate"]
    assert f"{certificate['value']:.9g}" in text
    assert f"{certificate['bound']:.9g}" in text
    for row in plain.result["clients"]:
        assert row["client"] in text
        assert f"{row['worst_loss']:.4g}" in text
        assert f"{100 * row['weight']:.1f} %" in text
    for said in (
        *plain.result["evaluation"]["verdict"],
        *plain.result["notes"],
        *words.summary(plain.result),
    ):
        assert said in text
    assert f"numpy {np.__version__}" in " ".join(text.split())
    assert "label_cost = 2.0" in text


def test_nothing_is_fetched_and_nothing_runs(plain: Run, hostile: Run) -> None:
    for run in (plain, hostile):
        found = read(run)
        assert not {"script", "img", "iframe", "object", "embed", "link", "base", "form"} & {
            tag for tag, _ in found.tags
        }
        for _, attributes in found.tags:
            assert not any(name.startswith("on") for name in attributes)
            for name in ("href", "xlink:href", "src", "action"):
                assert (attributes.get(name) or "#").startswith("#")
        raw = (run.path / "report.html").read_text("utf-8")
        assert "@import" not in raw
        assert not re.search(r"url\((?!#)", raw)
        assert "default-src 'none'" in raw


def test_it_suits_phones_dark_rooms_and_readers_that_cannot_see(plain: Run) -> None:
    found, raw = read(plain), (plain.path / "report.html").read_text("utf-8")
    assert (
        "meta",
        {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    ) in found.tags
    assert "prefers-color-scheme: dark" in raw
    assert next(attributes for tag, attributes in found.tags if tag == "html")["lang"] == "en"
    drawings = [attributes for tag, attributes in found.tags if tag == "svg"]
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(drawings) == len(list((plain.path / "figures").iterdir())) >= 5
    for attributes in drawings:
        assert attributes["role"] == "img"
        assert attributes["aria-labelledby"] in ids
        assert "width" not in attributes
    assert all(
        a.get("tabindex") == "0"
        for tag, a in found.tags
        if tag == "div" and a.get("class") == "scroll"
    )


def test_names_of_clients_are_text_and_nothing_else(hostile: Run) -> None:
    found = read(hostile)
    text = "".join(found.texts)
    for name in HOSTILE[:2]:
        assert name in text
    assert "<b>T</b> & clinics" in text
    assert not {"\u202e", "\x07"} & set(text)  # nothing turns the reading direction of what follows
    assert "<b>T" not in (hostile.path / "report.html").read_text("utf-8")


def test_figures_are_valid_svg_whatever_clients_are_called(hostile: Run) -> None:
    for file in (hostile.path / "figures").iterdir():
        root = ET.parse(file).getroot()
        assert root.tag == SVG + "svg"
        assert root[0].tag == SVG + "title"
        assert not list(root.iter(SVG + "script"))
    texts = [t.text for t in ET.parse(hostile.path / "figures" / "clients.svg").iter(SVG + "text")]
    assert label(HOSTILE[0]) in texts
    assert label(HOSTILE[1]) in texts  # a dollar sign starts no formula
    texts = [
        t.text for t in ET.parse(hostile.path / "figures" / "sweep_loss.svg").iter(SVG + "text")
    ]
    assert {"rows held out of the training rows", "this run", "0"} <= {*texts}


def test_the_same_run_gives_the_same_bytes(plain: Run) -> None:
    for name, text in render(plain).items():
        assert (plain.path / name).read_text("utf-8") == text


def test_markdown_keeps_names_inside_their_cells(hostile: Run) -> None:
    text = markdown(hostile)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("| ")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1
    assert any("alert" in row for row in rows)
    assert "<script" not in text.replace("\\<script", "")
    assert "![i](" not in text.replace("\\[", "")


# ------------------------------------------------------------------------------ runs of other kinds


def drawn(run: Run, **changes: object) -> tuple[str, dict[str, str]]:
    """The page and figures of a run whose result differs in some keys."""
    changed = replace(run, result={**run.result, **changes})
    made = figures(changed)
    return page(changed, made), made


def test_a_run_without_baselines_tests_radii_or_a_bound_has_a_report(plain: Run) -> None:
    nothing = {"measures": [], "pairs": [], "verdict": []}
    certificate = {**plain.result["certificate"], "bound": None, "gap": None, "relative_gap": None}
    clients = [
        {**row, "flips": None, "shift": None, "radius": 0.0} for row in plain.result["clients"]
    ]
    html, made = drawn(
        plain, evaluation=nothing, baselines={}, certificate=certificate, clients=clients, notes=[]
    )
    assert "No lower bound is proven" in html
    assert "Did robustness help" not in html
    assert not {"evaluation", "adversary"} & made.keys()


def test_regression_is_judged_by_its_error(numbers: Run) -> None:
    assert "Mean absolute error" in " ".join(read(numbers).texts)
    assert "Error by robust.radius" in " ".join(read(numbers).texts)
    assert "Worst error" in " ".join(read(numbers).texts)
    assert numbers.result["evaluation"]["measures"][0]["worst_error"] > 0


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Pooled rows of owners whose names want to be tags."""
    data = small_run.table(clinics=(*HOSTILE, "Sud"))
    text = TEXT.replace(small_run.CONFIG[small_run.CONFIG.index("[robust]") :], "")
    text += small_run.TAIL[small_run.TAIL.index("[problem]") :]
    return small_run.small_run(tmp_path_factory.mktemp("ranked"), draw=True, data=data, text=text)


def test_a_risk_by_rank_shows_what_is_weighed_and_whom_it_serves(ranked: Run) -> None:
    found = read(ranked)
    text = " ".join(" ".join(found.texts).split())
    assert "Is the superquantile of new losses lower?" in text
    assert "Did robustness help" not in text
    assert "superquantile (CVaR) of the losses over the pooled rows of 3 clients" in text
    for said in (*ranked.result["evaluation"]["verdict"], *words.summary(ranked.result)):
        assert " ".join(tables.printable(said).split()) in text
    names = {path.stem for path in (ranked.path / "figures").iterdir()}
    assert names >= {"convergence", "losses", "clients", "weights", "evaluation"}
    assert "traffic" not in names  # one place: nothing travels
    for name in names:
        assert ET.parse(ranked.path / "figures" / f"{name}.svg").getroot()[0].tag == SVG + "title"
    drawn = {t.text for t in ET.parse(ranked.path / "figures" / "losses.svg").iter(SVG + "text")}
    assert {"superquantile", "ERM", "loss", "weight (mean: 1)"} <= drawn
    drawn = {
        t.text for t in ET.parse(ranked.path / "figures" / "convergence.svg").iter(SVG + "text")
    }
    assert {"seconds", "gap", "proven bound"} <= drawn
    assert "Share of the weight" in text
    assert f"Fairness on held-out rows: {HOSTILE[0]} against all others" in text
    assert "Multipliers of single rows belong to the owner" in text
    for name, made in render(ranked).items():
        assert (ranked.path / name).read_text("utf-8") == made


def test_a_problem_that_is_not_convex_has_residuals_instead_of_a_bound(ranked: Run) -> None:
    certificate = {**ranked.result["certificate"], "bound": None, "gap": None, "relative_gap": None}
    certificate["residuals"] = [1.25e-7, 2.5e-8, 0.0]
    history = [
        {**row, "gap": "inf", "bound": "-inf", "residual": 0.5 / row["round"]}
        for row in ranked.history
    ]
    run = replace(ranked, result={**ranked.result, "certificate": certificate}, history=history)
    made = figures(run)
    html = page(run, made)
    text = " ".join(" ".join(Page(html).texts).split())
    assert "The problem is not convex: no lower bound is proven" in text
    assert "1.25e-07, 2.5e-08, 0 (KKT residuals)" in text
    assert "KKT residual 3" in markdown(run)
    drawn = {t.text for t in ET.fromstring(made["convergence"]).iter(SVG + "text")}
    assert "residual" in drawn
    assert "gap" not in drawn


def test_a_risk_inside_every_client_keeps_the_mix_of_clients(tmp_path: Path) -> None:
    run = small_run.small_run(tmp_path, draw=True, text=small_run.RANKS)
    text = " ".join(" ".join(read(run).texts).split())
    assert "q*: the worst client weights for this model" in text
    assert "Mean and superquantile of a client's training losses" in text
    assert {"losses", "traffic"} <= {path.stem for path in (run.path / "figures").iterdir()}


def test_ranks_of_all_rows_say_whose_rows_have_the_weight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run.small_run(tmp_path, text=small_run.TOGETHER)
    text = " ".join([*words.summary(run.result), words.lead(run.result), markdown(run)])
    assert "losses of all clients' rows, ranked together, plus" in text
    risk = tables.number(run.result["risk"]["together"])
    assert f"of the training losses, ranked over all clients, is {risk}." in text
    assert "of the losses over the rows of 2 clients" in text
    assert "weights of the rows, which are counted again from the model" in text
    heads = ("Client", "Rows", "Share of rows", "Mean loss", "Superquantile", "Share of the weight")
    assert f"| {' | '.join(heads)} |" in text
    assert [*prior_of(run).values()] == [row["share"] for row in run.result["owners"]]
    show_exposed(run, "North")
    assert "Rows of North that weigh most" in capsys.readouterr().out


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Constraints asked of clients, and about groups, whose names want to be tags."""
    data = small_run.wards(small_run.table(clinics=(*HOSTILE, "Sud"))).replace(
        ",a\n", ",<i>a$</i>\n"
    )
    text = small_run.KEPT.replace('"South"', '"Sud"').replace("{ North = 0.4, East = 0.5 }", "0.6")
    text = text.replace("values = [0.3, 0.5]", "values = [0.0, 0.3, 0.5]")
    return small_run.small_run(tmp_path_factory.mktemp("kept"), draw=True, data=data, text=text)


def test_constraints_show_limits_rates_prices_bands_and_levels(kept: Run) -> None:
    found = read(kept)
    text = " ".join(" ".join(found.texts).split())
    met = [row["met"] for row in kept.result["constraints"]]
    assert all(met)
    assert f"{len(met)} of {len(met)}" in text
    assert "A model under constraints over the rows of 3 clients" in text
    assert "Are the constraints met on new rows?" in text
    for said in (
        *kept.result["prices"],
        *kept.result["evaluation"]["verdict"],
        *words.summary(kept.result),
    ):
        assert " ".join(tables.printable(said).split()) in text
    for row in kept.result["constraints"]:
        assert {f"{row['limit']:.4g}", f"{row['measured']:.4g}"} <= {*text.split()}
    heads = {
        "Owner",
        "Limit",
        "Measured",
        "Slack",
        "Multiplier",
        "Met",
        "Rate",
        "unconstrained: measured",
    }
    assert heads <= {*found.texts}
    assert not FETCHING & {tag for tag, _ in found.tags}
    assert "<i>a$</i>" in text
    assert "<i>" not in (kept.path / "report.html").read_text("utf-8")
    names = {path.stem for path in (kept.path / "figures").iterdir()}
    shown = {"evaluation", "coefficients", "roc", "calibration"}
    assert names == {"rounds", "bands", "kept", *SWEPT} | shown
    drawn = {n: ET.parse(kept.path / "figures" / f"{n}.svg").getroot() for n in names}
    assert all(root[0].tag == SVG + "title" for root in drawn.values())
    letters = {name: {t.text for t in root.iter(SVG + "text")} for name, root in drawn.items()}
    assert {"met", "more", "round", *map(label, HOSTILE[:2])} <= letters["bands"]
    assert {"training rows", "held-out rows", "unconstrained", "all clients"} <= letters["kept"]
    assert {"objective", "slope by the multiplier"} <= letters["sweep_value"]
    assert {"largest rate in %", "training rows"} <= letters["sweep_rate"]
    for name, made in render(kept).items():
        assert (kept.path / name).read_text("utf-8") == made


def test_markdown_of_constraints_keeps_names_inside_their_cells(kept: Run) -> None:
    text = markdown(kept)
    for title in (
        "Constraints on the training rows",
        "Constraints on held-out rows",
        "Shadow prices",
        "Other values",
    ):
        assert f"## {title}" in text
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("| ")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1
    assert "<i>a" not in text.replace("\\<", "")


def test_many_constraints_are_shown_from_the_tightest(kept: Run) -> None:
    row = kept.result["constraints"][-1]
    many = [{**row, "owner": f"c{k}", "slack": float(k)} for k in range(100)]
    html = page(replace(kept, result={**kept.result, "constraints": many}), {})
    text = " ".join(" ".join(Page(html).texts).split())
    assert "The 60 of 100 with the smallest slack" in text
    assert "c59" in text
    assert "c60 " not in text


def test_where_nothing_is_feasible_no_model_is_recommended(kept: Run) -> None:
    rows = [
        {**row, "met": False, "slack": -0.1, "price": 0.0, "weight": 0.25}
        for row in kept.result["constraints"]
    ]
    certificate = {
        **kept.result["certificate"],
        "bound": None,
        "gap": None,
        "relative_gap": None,
        "infeasible": 0.1,
    }
    outcome = {"stop": "infeasible", "text": "no model meets all constraints."}
    changed = {"constraints": rows, "certificate": certificate, "outcome": outcome, "prices": []}
    html = page(replace(kept, result={**kept.result, **changed}), {})
    text = " ".join(" ".join(Page(html).texts).split())
    for said in (
        "No model is recommended",
        "Weight in the proof",
        "combine the constraints into one",
        "every model violates",
    ):
        assert said in text
    assert "The proof combines" in text
    assert (
        "within"
        not in text.split("Certificate")[0].split("In plain words")[1].split("new rows?")[0]
    )


def test_levels_where_nothing_is_feasible_are_marked(kept: Run) -> None:
    assert kept.swept is not None
    first, *rest = kept.swept.table["points"]
    lost = {
        **kept.swept.table,
        "points": [{**first, "value": None, "price": None, "outcome": "infeasible"}, *rest],
    }
    points = {**kept.points, "sweep": replace(kept.swept, table=lost)}
    run = replace(kept, points=points)
    drawn = figures(run)["sweep_value"]
    assert "nothing feasible" in {t.text for t in ET.fromstring(drawn).iter(SVG + "text")}
    assert "At 0 no model meets all constraints" in " ".join(sweep.words(run))
    plain = replace(kept, history=[{"round": 1}, {"round": 2}], points={})
    assert {"bands", *SWEPT}.isdisjoint(figures(plain))


def test_many_clients_are_drawn_up_to_a_limit(plain: Run) -> None:
    row = plain.result["clients"][0]
    clients = [{**row, "client": f"c{k}", "worst_loss": float(k)} for k in range(100)]
    html, made = drawn(plain, clients=clients)
    names = [t.text or "" for t in ET.fromstring(made["clients"]).iter(SVG + "text")]
    assert [name for name in names if name.startswith("c")] == [f"c{k}" for k in range(99, 59, -1)]
    assert "40 clients with the largest" in html


def test_rounds_without_numbers_are_gaps_in_the_line() -> None:
    rows = [{"gap": "inf"}, {"gap": None}, {}, {"gap": 0.5}]
    assert np.isnan(column(rows, "gap")[:3]).all()
    assert column(rows, "gap")[3] == 0.5


# ------------------------------------------------------------------------------------- in a browser

CROWD = 100  # clients
FEATURES = 60


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A hundred clients with long names, and sixty coefficients of columns with long names."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8 * CROWD, FEATURES))
    sick = X[:, 0] + rng.normal(size=len(X)) > 0
    columns = [f"{'concentration of protein' if k % 2 else 'x'} {k}" for k in range(FEATURES)]
    lines = [",".join(["clinic", *columns, "sick"])]
    for k, (x, y) in enumerate(zip(X, sick, strict=True)):
        name = f"Saint-Elizabeth-of-Hungary Teaching Hospital, {k // 8}"
        lines.append(f'"{name}",{",".join(f"{v:.3f}" for v in x)},{"yes" if y else "no"}')
    text = small_run.MIXED.replace("tol = 1e-2", "max_rounds = 2").replace("0.4", "0.3")
    text += '[report]\ncompare_with = ["erm"]\n'
    folder = tmp_path_factory.mktemp("crowd")
    return small_run.small_run(folder, draw=True, data="\n".join(lines) + "\n", text=text)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A regression, with a path."""
    text = TEXT.replace('target = "sick"', 'target = "dose"\nfeatures = ["age"]')
    text = text.replace("[robust]", '[problem]\nloss = "huber"\n[robust]')
    text = text.replace('"Sud"', '"South"').replace("compare_with", "# compare_with")
    folder = tmp_path_factory.mktemp("numbers")
    return small_run.small_run(
        folder, draw=True, text=text + small_run.sweep("robust.radius", 0.1, 0.2)
    )


@needs_browser
@pytest.mark.parametrize("kind", ["hostile", "ranked", "kept", "numbers", "crowd"])
def test_nothing_is_cut_on_a_screen_a_phone_or_paper(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run = request.getfixturevalue(kind)
    assert cut((run.path / "report.html").read_text("utf-8"), tmp_path) == []


@needs_browser
def test_what_would_be_cut_is_found(plain: Run, tmp_path: Path) -> None:
    wide = '<table><tr><td class="n">' + 400 * "1" + "</td></tr></table>"
    html = (plain.path / "report.html").read_text("utf-8")
    found = cut(html.replace("</main>", f'<div class="scroll">{wide}</div></main>'), tmp_path)
    assert {line.split()[0] for line in found} == {"1280", "390", "A4"}


@needs_browser
def test_a_browser_draws_letters_cards_and_figures(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes((plain.path / "report.html").read_bytes())
    shot = tmp_path / "shot.png"
    page = (tmp_path / "page.html").as_uri()
    browse(tmp_path, "--window-size=1280,900", f"--screenshot={shot}", page)
    from matplotlib.image import imread

    pixels = imread(shot)[:, :, :3]
    shades = np.unique((pixels.reshape(-1, 3) * 255).astype(int) // 8, axis=0)
    assert len(shades) > 20  # letters, cards, figures: not one blank colour
    assert 0.01 < (pixels.min(axis=2) < 0.5).mean() < 0.5  # ink on a light page
