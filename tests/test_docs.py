"""README and docs: their Python runs, what they name exists, links resolve, their tables are those
of the code.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import shlex
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml

import bonafed
from bonafed.certificates.row_ranks import RankCertification, SpectrumCertification
from bonafed.cli import app
from bonafed.codec import FIELDS
from bonafed.config.config import Config, parse_config
from bonafed.rounds import visibility

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import measure  # noqa: E402
import render  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
SOURCE = ROOT / "src" / "bonafed"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
COMMAND: Any = typer.main.get_command(app)

FIRST = """\
python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/bonafed run examples/heart.toml
.venv/bin/pip install -q '.[test]' && .venv/bin/python -m pytest -n 2 --dist loadfile
"""


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(first line, text) of the fenced blocks of a language."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, m.start(1)), m[1]) for m in found]


def prose(page: Path) -> str:
    """The page without fenced blocks."""
    return re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of all tables whose header starts with ``heading``, cells stripped."""
    rows, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append(
                [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            )
        inside = inside or line.startswith(f"| {heading}")
    assert rows, f"{page.name} has no table {heading!r}"
    return rows


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# ---- what is written runs


# whose blocks follow each other and are run together
ELSEWHERE = {"real-machines.md": "tests/people/test_real_machines.py"}


@EACH
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in ELSEWHERE:
        pytest.skip(f"run by {ELSEWHERE[page.name]}")
    monkeypatch.chdir(tmp_path)
    # noise from the operating system makes one run in a hundred say so of rows that are not
    warnings.filterwarnings("ignore", "some .* of the rows are shortened by clip", RuntimeWarning)
    module = types.ModuleType(f"docs_{page.stem}")
    # where dataclasses look up their annotations
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for line, text in blocks(page, "python"):
        tree = ast.increment_lineno(ast.parse(text, str(page)), line)
        exec(compile(tree, str(page), "exec", dont_inherit=True), vars(module))


def test_enough_python_runs() -> None:
    assert {page.stem for page in PAGES if blocks(page, "python")} >= {
        "README",
        "drfl",
        "rank",
        "constrained",
        "private",
        "aspire",
        "data",
        "engines",
        "extending",
    }


def test_own_parts_are_short() -> None:
    """Extending takes few lines: 20 for a part, a handful more for a whole algorithm."""
    tree = ast.parse("".join(text for _, text in blocks(ROOT / "docs" / "extending.md", "python")))
    parts = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert {node.name for node in parts} >= {"LogCosh", "Descent", "Pairs", "WorstShare"}
    for node in parts:
        lines = len([line for line in ast.unparse(node).splitlines() if line.strip()])
        assert lines <= (26 if node.name == "Descent" else 20), node.name


def test_the_two_commands_of_the_readme() -> None:
    assert blocks(ROOT / "README.md", "sh")[0][1] == FIRST


def commands(page: Path) -> Iterator[list[str]]:
    """What follows ``bonafed`` in shell blocks."""
    for _, text in blocks(page, "sh"):
        for line in text.splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                if words and words[0].split("/")[-1] == "bonafed":
                    yield words[1:]


@EACH
def test_commands_are_understood(page: Path) -> None:
    for name, *arguments in commands(page):
        assert name in COMMAND.commands, name
        COMMAND.commands[name].make_context(name, arguments)  # raises where they do not fit


def test_wrong_usage_would_be_found() -> None:
    with pytest.raises(Exception, match="--no-such"):
        COMMAND.commands["run"].make_context("run", ["a.toml", "--no-such"])


@EACH
def test_commands_named_in_the_text_exist(page: Path) -> None:
    for words in re.findall(r"`bonafed ([a-z]+)[^`]*`", prose(page)):
        assert words in COMMAND.commands, words


def test_every_command_and_option_is_documented() -> None:
    rows = table(ROOT / "docs" / "cli.md", "command ")
    said = {code(row[0])[0].split()[1]: {*code(row[2])} for row in rows}
    assert said.keys() == COMMAND.commands.keys()
    for name, command in COMMAND.commands.items():
        parts = getattr(command, "commands", {}).values() or [command]
        # of several names, such as -o and --output, the first
        taken = {p.opts[0] for part in parts for p in part.params}
        options = {option for option in taken if option.startswith("--")} - {"--help"}
        assert said[name] == options, name


# ---- what is named exists


@EACH
def test_public_names_exist(page: Path) -> None:
    for name in re.findall(r"\bbf\.([A-Za-z_]\w*)", page.read_text(encoding="utf-8")):
        assert name in bonafed.__all__, name


def test_files_and_modules_that_a_source_names_exist() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", text):
            near = (path.parent / name, SOURCE / name, ROOT / name)
            assert any(file.is_file() for file in near), f"{path} names {name}, which is not there"
        for name in re.findall(r"`(bonafed(?:\.\w+)+)`", text):
            pkgutil.resolve_name(name)


@EACH
def test_files_named_in_the_text_exist(page: Path) -> None:
    for name in re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|toml))`", prose(page)):
        near = (ROOT / name, SOURCE / name)
        assert (
            any(path.is_file() for path in near)
            or name in ("config.toml", "solve.py", "bonafed.toml", "site.toml", "trial.toml")
            or ("my" in name)
        ), name


def slug(heading: str) -> str:
    """The anchor of a heading as code hosts make it."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in "-_ ")
    return kept.strip().replace(" ", "-")


@EACH
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        assert not target.startswith("http"), "pages of others may move: name them in words"
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.is_file(), target
        if there.suffix != ".md":
            continue
        headings = re.findall(r"^#+ (.*)$", prose(there), re.MULTILINE)
        assert not anchor or anchor in map(slug, headings), target


def test_every_page_is_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    links = [(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)", index)]
    assert {*PAGES} - {ROOT / "docs" / "index.md"} <= {*links}


# ---- tables are those of the code


def test_equations_point_to_code() -> None:
    page = ROOT / "docs" / "equations.md"
    rows = [
        row[-4:] if len(row) > 3 else [*row, ""]
        for h in ("paper ", "line ")
        for row in table(page, h)
    ]
    for _, file, names, quoted in rows:
        (path,) = code(file)
        module = importlib.import_module("bonafed." + path.removesuffix(".py").replace("/", "."))
        for name in code(names):
            found = module
            for part in name.split("."):
                assert hasattr(found, part), f"{path} has no {name}"
                found = getattr(found, part)
        for text in code(quoted):
            assert text in (SOURCE / path).read_text(encoding="utf-8"), f"{path} has no {text!r}"


def test_every_line_of_algorithm_1_has_its_code() -> None:
    rows = table(ROOT / "docs" / "equations.md", "line ")
    lines = {int(number) for row in rows for number in row[0].split(",")}
    assert lines | {3, 9, 13} == set(range(1, 21))


@pytest.mark.parametrize(("number", "lines"), [(1, 10), (2, 11)])
def test_every_line_of_the_constrained_algorithms_has_its_code(number: int, lines: int) -> None:
    rows = [row[0] for row in table(ROOT / "docs" / "equations.md", "paper ")]
    said = [re.match(rf"Algorithm {number}, lines? ([\d, ]+)", cell) for cell in rows]
    found = {int(k) for match in said if match for k in re.findall(r"\d+", match[1])}
    assert found == set(range(1, lines + 1))


PROOF = {"Certify", "Certified"}  # messages of the certificate
ENDING = {"Concluded"}  # the answer to `Conclude`, after the last round
SURVEYS = {"Survey", "Surveyed", *PROOF}
WEIGHING = {"Weigh", "Weighed", "WeighAlong", "WeighedAlong"}
FEDERATED = [bonafed.Bundle(), bonafed.ADLPMM(), bonafed.EpigraphADMM(), bonafed.DoubleLoop()]
CONSTRAINED = [bonafed.InteriorPoint(), bonafed.ProximalAL()]
PRIVATE = [
    bonafed.PrivateNewton(),
    bonafed.PrivateADMM(),
    bonafed.OutputPerturbedADMM(),
    bonafed.PrivateSGD(),
    bonafed.PrivateSGD(quantile=0.5),
]
MIXED = [bonafed.AsyncBundle(), bonafed.AsyncDRO(), bonafed.ASPIRE(), bonafed.MultiplierMethod()]
MIXED += [bonafed.AFL(), bonafed.DRFA(), bonafed.FedAvg()]
POOLED = [
    bonafed.RankADMM(),
    bonafed.SmoothedRankADMM(),
    bonafed.SGD(),
    bonafed.LSVRG(),
    bonafed.DCA(),
]


@pytest.mark.parametrize(
    ("page", "algorithms", "more"),
    [
        ("drfl.md", FEDERATED, PROOF | ENDING),
        ("rank.md", POOLED, SURVEYS),
        ("constrained.md", CONSTRAINED, WEIGHING),
        ("private.md", PRIVATE, set()),
        ("aspire.md", MIXED, PROOF | {"Differentiate", "Differentiated"}),
    ],
)
def test_messages_disclose_what_the_page_says(
    page: str, algorithms: list[Any], more: set[str]
) -> None:
    rows = table(ROOT / "docs" / page, "class ")
    for public in bonafed.__all__:  # a record is known once its module is imported
        getattr(bonafed, public)
    records = {cls.__name__: cls for cls in FIELDS if cls.__module__.startswith("bonafed.")}
    for name, _, fields in rows:
        said = dict(re.findall(r"(\w+) \((\w+)\)", fields))
        assert said == visibility(records[code(name)[0]]), name
    asked = {
        kind.__name__
        for algorithm in algorithms
        for kind in (*algorithm.on_client, *algorithm.on_server)
    }
    here = {code(row[0])[0] for row in rows}
    shared = {code(row[0])[0] for row in table(ROOT / "docs" / "drfl.md", "class ")}
    assert here <= asked | more
    if missing := (asked | more) - here:  # what several pages would say stands on the first
        assert missing <= shared
        assert "(drfl.md#what-each-message-discloses)" in prose(ROOT / "docs" / page)


def test_messages_of_ranks_over_all_rows_disclose_what_the_page_says() -> None:
    records = {
        kind.__name__: kind
        for rounds in (
            bonafed.RankInteriorPoint(),
            bonafed.RankBundle(),
            bonafed.KinkInteriorPoint(),
            bonafed.RowMultiplierMethod(),
            RankCertification(np.zeros(1)),
            SpectrumCertification(np.zeros(1)),
        )
        for kind in (*rounds.on_client, *rounds.on_server)
    }
    said = {
        code(name)[0]: dict(re.findall(r"(\w+) \((\w+)\)", fields))
        for name, _, fields in table(ROOT / "docs" / "rank.md", "message ")
    }
    assert said == {name: visibility(kind) for name, kind in records.items()}


def keys(model: Any, prefix: str = "") -> Iterator[str]:
    """Dotted keys of a configuration, down to the sections' own."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for name in model.keys():  # noqa: SIM118
        kind = getattr(fields.get(name), "annotation", None)
        kinds = [kind, *getattr(kind, "__args__", ())]
        section = next(
            (k for k in kinds if isinstance(k, type) and hasattr(k, "model_fields")), None
        )
        if section is None or prefix:
            yield prefix + name
        else:
            yield from keys(section, f"{name}.")


def test_every_key_of_a_configuration_is_documented() -> None:
    said = [key for row in table(ROOT / "docs" / "cli.md", "key ") for key in code(row[0])]
    assert sorted(said) == sorted(keys(Config))


@EACH
def test_configurations_are_valid(page: Path) -> None:
    for _, text in blocks(page, "toml"):
        config = parse_config(text, folder=page.parent)
        config.problem()
        config.solve_arguments()


def test_every_folder_and_every_module_at_the_root_is_described() -> None:
    rows = table(ROOT / "docs" / "architecture.md", "place ")
    named = [code(row[0])[0] for row in rows]
    folders = {f"{path.parent.relative_to(SOURCE)}/" for path in SOURCE.rglob("*/__init__.py")}
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py"}
    assert sorted(named) == sorted((folders - {"./"}) | modules)


# ---- what a stranger reads first


def test_the_readme_shows_five_capabilities_in_six_lines_each() -> None:
    _, *examples = [text for _, text in blocks(ROOT / "README.md", "python")]
    assert len(examples) == 5
    assert all(len(text.splitlines()) <= 6 for text in examples)
    assert [
        code[0] for code in (re.findall(r"bf\.(\w+Classifier)", text) for text in examples)
    ] == [
        "RobustClassifier",
        "AgnosticClassifier",
        "ConstrainedClassifier",
        "PrivateClassifier",
        "RiskClassifier",
    ]


# a number, with its sign left out, and not a part of a name or of another number
FIGURE = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?|\.\d+)(?:e-\d+)?(?![\w.]*\d)")


def not_printed(said: str, measured: str) -> list[str]:
    """The numbers of a text that none of a benchmark is, rounded to as many places."""
    exact = [float(figure) for figure in FIGURE.findall(measured.replace(",", ""))]
    missing = []
    for figure in FIGURE.findall(said.replace(",", "")):
        places = len(figure.partition(".")[2]) if "e" not in figure else 12
        if float(figure) not in (round(each, places) for each in exact):
            missing.append(figure)
    return missing


def test_every_figure_beside_what_people_use_is_one_of_the_benchmark_named() -> None:
    rows = table(ROOT / "README.md", "problem ")
    assert len(rows) == 6
    for *said, scripts in rows:
        held = [RESULTS / f"{Path(script).stem}.json" for script in code(scripts)]
        saved = " ".join(path.read_text(encoding="utf-8") for path in held)
        assert not not_printed(" ".join(said), saved), scripts


def test_the_page_of_benchmarks_is_rendered_from_the_saved_results() -> None:
    written = render.PAGE.read_text(encoding="utf-8")
    assert written == render.page(), "run: python benchmarks/render.py"


def test_every_script_that_prints_a_table_has_a_section() -> None:
    scripts = {path.name for path in render.PAGE.parent.rglob("*.py")}
    shown = {Path(section.script).name for section in render.SECTIONS}
    prints = {
        path.name
        for path in render.PAGE.parent.rglob("*.py")
        if "measure.show(" in path.read_text(encoding="utf-8")
    }
    parts = {"constrained_parity.py", "async_tables.py", "cliff_grid.py"}  # of other scripts
    assert prints - parts <= shown <= scripts
    assert {path.stem for path in RESULTS.iterdir()} <= {Path(name).stem for name in shown}


def test_a_script_saves_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "SAVE", True)
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["oracle.py", "part"])
    measure.show("cuts", ("loss", "ratio"), [("Hinge", np.float64(1.23456789)), ("none", np.inf)])
    targets = measure.Targets()
    targets.need(False, "at most 1")
    with pytest.raises(SystemExit) as left:
        targets.finish()
    assert left.value.code == 1
    printed = capsys.readouterr().out
    held = json.loads((tmp_path / "oracle.json").read_text(encoding="utf-8"))
    assert held["tables"]["cuts"]["rows"] == [["Hinge", 1.23457], ["none", "inf"]]
    assert "| Hinge | 1.235 |" in printed
    assert held["targets"]["part"]["verdicts"] == [["at most 1", False]]
    assert held["tables"]["cuts"]["measured"].keys() == {"date", "commit", "machine"}


def test_a_figure_that_no_benchmark_prints_would_be_found() -> None:
    measured = "| 20000 x 20 | 0.0819 | -.042 | 12.07 | 2e-10 |"
    assert not_printed("20,000 rows: 0.082 CPU s, .042 lower, 12.0 %, 2e-10", measured) == ["12.0"]
    assert not_printed("0.083 CPU s, .043 lower, 3e-10", measured) == ["0.083", ".043", "3e-10"]


def test_the_citation_names_this_version_and_the_five_papers() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == bonafed.__version__
    assert {"message", "title", "authors"} <= cited.keys()
    papers = cited["references"]
    assert [paper["authors"][0]["family-names"] for paper in papers] == [
        "Bai",
        "Jiao",
        "He",
        "Ryu",
        "Xiao",
    ]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert all(paper["title"] in readme for paper in papers)


def test_the_glossary_has_the_words_of_the_field() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    for word in ("CVaR", "expected shortfall", "shadow price", "distortion risk"):
        assert word in text, word
