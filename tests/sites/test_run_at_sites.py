"""Runs over sites from the command line: the folder, its checks, what ends and what goes on."""

from __future__ import annotations

import _thread
import json
import math
import shutil
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
from border.test_liars import WRONG, Late, telling
from sites.folders import CLASSES, NAMES, OPEN, folder_of, roles, rows_of

import bonafed as bf
from bonafed.__main__ import main
from bonafed.config.config import parse_config
from bonafed.engines.wire import Envelope, LocalTransport
from bonafed.report.sections.opening import answers
from bonafed.rounds import decode, encode
from bonafed.runs.files import RunError, digest, seal
from bonafed.runs.folder import read_run
from bonafed.sites import run as runs
from bonafed.sites.party import Party, open_party
from bonafed.sites.server import serve
from bonafed.sites.session import Introduce
from bonafed.statements import statement_bytes

CONFIG = """
title = "over sites"

[data]
sites = ["east", "north", "south"]
target = "state"
classes = ["ill", "well"]
scale = "none"
test = 0.3
{data}

[data.columns]
age = {{}}
dose = {{}}
stay = {{}}

[problem]
loss = "{loss}"

{rest}
"""
CONSTRAINED = """
[[constraint]]
kind = "neyman_pearson"
label = "ill"
level = 0.55
"""
COMPARED = '[report]\ncompare_with = ["erm", "drfa"]\n[robust]\nradius = 0.02\nlabel_cost = 1.0\n'
MASKED = """
[report]
compare_with = ["erm"]
[clients]
risk = "lp_ball"
radius = 0.2
[engine]
secure_sum = true
"""


def config(
    rest: str = "", loss: str = "logistic", data: str = "", report: str = "html = false"
) -> str:
    """A configuration; drawing its report takes longer than its run, so few tests ask for it."""
    head, _, rest = rest.partition("[report]\n")
    rest = f"{head}\n[report]\n{report}\n{rest}"
    return CONFIG.format(rest=rest, loss=loss, data=data)


serve_it = serve  # what the server does


class Ending(LocalTransport):
    """Sites in this process, whose command is interrupted once, at some message."""

    def __init__(self, sites: dict[str, Party], after: list) -> None:
        super().__init__({name: partial(site.answer, "server") for name, site in sites.items()})
        self.after, self.asked, self.over = after, 0, False

    def push(self, client: str, seq: int, message: bytes) -> None:
        self.asked += 1
        if self.after and self.after[0](self.asked):
            self.after.clear()
            _thread.interrupt_main()
            while not self.over:  # nothing is answered until the command has noticed
                time.sleep(0.01)
            raise EOFError("the engine was stopped")
        super().push(client, seq, message)

    def poll(self, timeout: float | None = None) -> list:
        if self.over:
            raise EOFError("the engine was stopped")
        return super().poll(0.5)

    def end(self) -> None:
        self.over = True


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with three sites, whose engine is this process; ``killed`` ends it once, in the
    middle.
    """
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        folder_of(tmp_path / "sites", name, OPEN)
    killed: list = []

    @contextmanager
    def engine(space, carrier, names, job, progress):
        folders = runs.site_folders(Path(carrier.sites), names)
        sites = {name: open_party(folder, name) for name, folder in folders.items()}
        transport = Ending(sites, killed)
        server = space / "server" / carrier.experiment

        def submitted() -> None:
            if not runs._ended(server):  # as a supervisor looks before it submits
                serve_it(transport, server, job)

        try:
            yield server, submitted, transport.end
        finally:
            for site in sites.values():
                site.close()

    monkeypatch.setattr(runs, "installed", lambda engine: None)
    monkeypatch.setattr(runs, "_flare", engine)
    return killed


def bonafed(*arguments: str) -> int:
    """The status of a command."""
    import sys

    before, sys.argv = sys.argv, ["bonafed", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def finished(text: str) -> Path:
    Path("trial.toml").write_text(text)
    assert bonafed("run", "trial.toml", "--engine", "flare-sim", "--sites", "sites") == 0
    (folder,) = (path for path in Path("runs").iterdir() if path.is_dir())
    return folder


@pytest.mark.parametrize(
    "text",
    [
        config(report=""),
        config(COMPARED, loss="hinge", report=""),
        config(CONSTRAINED, data='groups = ["sex"]', report=""),
        config("[algorithm]\nmax_rounds = 3\n", report=""),
        config(MASKED, report=""),
    ],
    ids=["plain", "compared", "constrained", "cut off", "masked"],
)
def test_a_folder_over_sites_is_read_drawn_and_checked(here, text, capsys):
    folder = finished(text)
    run = read_run(folder)
    assert [row["client"] for row in run.result["clients"]] == [*NAMES]
    measures = run.result["evaluation"]["measures"]
    assert len(measures) == 1 + len(run.config.report.compare_with)
    assert measures[0]["n"] + sum(row["n"] for row in run.result["clients"]) == 120 * len(NAMES)
    assert "checks" not in run.result
    assert all(answer == answer.strip() for answer in answers(run).values())
    assert bonafed("verify", str(folder)) == 1  # rows that are not here are not checked
    assert bonafed("verify", str(folder), "--without-data") == 0
    assert bonafed("report", str(folder), "--format", "md") == 0
    assert bonafed("predict", str(folder), "sites/east/rows.csv", "--out", "p.csv") == 0
    capsys.readouterr()
    # the model is that of rows in one place, of which each site chose the same ones
    if not run.config.constrained:
        assert np.isfinite(run.w).all()


def test_a_run_of_numbers_over_sites(here):
    text = config(loss="huber").replace('classes = ["ill", "well"]\n', "")
    text = text.replace('target = "state"', 'target = "stay"').replace("stay = {}\n", "")
    run = read_run(finished(text))
    (row,) = run.result["evaluation"]["measures"]
    assert row["r2"] is None
    assert row["mae"] == pytest.approx(row["error"])


def same_split(name: str) -> None:
    """The same rows of this site are held out every time."""
    secret = Path("sites", name, "site.secret")
    secret.write_bytes(bytes(32))
    secret.chmod(0o600)


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_a_model_that_is_no_better_than_a_constant_says_so(here, loss):
    text = config("", loss).replace("[problem]", "[problem]\nstrength = 1e6")
    for name in NAMES:
        same_split(name)
    if loss == "huber":
        text = text.replace('classes = ["ill", "well"]\n', "").replace('"state"', '"stay"')
        text = text.replace("stay = {}\n", "")
    else:  # one row in four is well, whatever its columns say
        for name in NAMES:
            file = Path("sites", name, "rows.csv")
            head, *rows = file.read_text().replace(",well,", ",ill,").splitlines()
            rows[::4] = [row.replace(",ill,", ",well,") for row in rows[::4]]
            file.write_text("\n".join([head, *rows]) + "\n")
    run = read_run(finished(text))
    said = "to every row would be" if loss == "logistic" else "no better than the mean"
    assert said in run.result["notes"][-1]


def test_a_site_that_codes_the_outcome_the_other_way_round_is_named_first(here, capsys):
    keys(capsys)
    for name in NAMES:
        same_split(name)
    file = Path("sites", "south", "rows.csv")
    turned = file.read_text().replace(",well,", ",?,").replace(",ill,", ",well,")
    file.write_text(turned.replace(",?,", ",ill,"))
    folder = finished(config())
    assert "beyond chance, at south (AUC 0." in capsys.readouterr().out
    run = read_run(folder)
    assert run.result["notes"][0].startswith("The model ranks the held-out rows the wrong way")
    assert "not compared between the sites" in answers(run)["Can I trust the numbers?"]
    assert bonafed("verify", str(folder), "--keys", "keys") == 0


def test_a_model_that_is_better_than_a_constant_says_nothing(here):
    notes = read_run(finished(config())).result["notes"]
    assert not any("would be" in note for note in notes)


@pytest.mark.parametrize("after", [12, 60])
def test_a_run_that_is_cut_short_goes_on_to_the_same_bits(here, after, capsys):
    keys(capsys)
    undisturbed = read_run(finished(config(COMPARED, loss="hinge"))).w
    shutil.rmtree("runs")
    for name in NAMES:
        shutil.rmtree(Path("sites", name, "state"))
    here.append(lambda asked: asked > after)
    assert bonafed("run", "trial.toml", "--engine", "flare-sim", "--sites", "sites") == 130
    assert "--resume runs/over-sites.partial" in capsys.readouterr().err
    assert bonafed("run", "--resume", "runs/over-sites.partial") == 0
    (folder,) = (path for path in Path("runs").iterdir() if path.is_dir())
    np.testing.assert_array_equal(read_run(folder).w, undisturbed)
    assert bonafed("verify", str(folder), "--keys", "keys") == 0


def test_a_site_that_refuses_ends_the_run_by_its_rule(here, capsys):
    file = Path("sites/north/site.toml")
    file.write_text(file.read_text().replace("[policy]", "[policy]\nminimum_rows = 1000"))
    Path("trial.toml").write_text(config())
    assert bonafed("run", "trial.toml", "--engine", "flare-sim", "--sites", "sites") == 2
    said = capsys.readouterr().err
    assert "the site north refuses by its rule 'rows': this site cannot take part" in said
    assert bonafed("site", "log", "sites/north") == 0
    assert "minimum_rows: " in capsys.readouterr().out
    # nothing had begun: nothing is promised, and no folder is left
    assert "kept" not in said
    assert not [*Path("runs").iterdir()]
    file.write_text(file.read_text().replace("minimum_rows = 1000", ""))
    finished(config())


def test_what_a_server_elsewhere_keeps_of_a_refused_run_stays_within_reach(
    here, monkeypatch, capsys
):
    monkeypatch.chdir("sites")
    file = Path("north/site.toml")
    file.write_text(file.read_text().replace("[policy]", "[policy]\nminimum_rows = 1000"))
    Path("trial.toml").write_text(config())
    assert bonafed("run", "trial.toml", "--engine", "flare", "--kit", "kit") == 2
    assert "--resume runs/over-sites.partial" in capsys.readouterr().err
    file.write_text(file.read_text().replace("minimum_rows = 1000", ""))
    assert bonafed("run", "--resume", "runs/over-sites.partial") == 0


def test_too_few_organisations_are_told_once_and_leave_no_folder(here, capsys):
    for name in NAMES:
        file = Path("sites", name, "site.toml")
        file.write_text(file.read_text().replace("[policy]", "[policy]\nminimum_organizations = 5"))
    Path("trial.toml").write_text(config(data='positive = "ill"'))
    assert bonafed("run", "trial.toml", "--engine", "flare-sim", "--sites", "sites") == 2
    said = capsys.readouterr()
    assert "refuses by its rule 'minimum_organizations': 3 of the 5" in said.err
    assert "kept" not in said.err
    assert not [*Path("runs").iterdir()]
    assert said.out.startswith("figures and probabilities are about the class ill\n")


@pytest.mark.parametrize("engine", ["flare-sim", "flower-sim"])
def test_an_engine_that_is_not_installed_leaves_no_folder(engine, tmp_path, monkeypatch, capsys):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bonafed.engines.flare.version", missing)
    monkeypatch.setattr("bonafed.sites.trial.flower.shutil.which", lambda name, path: None)
    for name in NAMES:
        folder_of(tmp_path / "sites", name)
    Path("trial.toml").write_text(config())
    assert bonafed("run", "trial.toml", "--engine", engine, "--sites", "sites") == 2
    said = capsys.readouterr().err
    assert "not installed" in said
    assert "pip install" in said
    assert "kept" not in said
    assert not [*Path("runs").iterdir()]


def test_a_site_that_could_not_answer_stops_a_run_at_once_and_others_do_not(here, capsys):
    Path("sites/x").mkdir()
    Path("sites/x/site.toml").write_text('[site]\nname = "west"\nnmae = 1\n')
    file, run = Path("sites/east/site.toml"), ("run", "trial.toml", "--engine", "flare-sim")
    file.write_text(file.read_text().replace("[data]", 'key = "site.key"\n\n[data]'))
    Path("trial.toml").write_text(config())
    assert bonafed(*run, "--sites", "sites") == 2
    assert "site 'east': there is no private key" in capsys.readouterr().err
    assert not [*Path("runs").iterdir()]
    assert bonafed("site", "key", "sites/east") == 0
    finished(config())
    Path("trial.toml").write_text(config().replace('"south"', '"west"'))
    capsys.readouterr()
    assert bonafed(*run, "--sites", "sites") == 2
    said = capsys.readouterr().err
    assert "no folder below" in said
    assert "site.nmae: unknown key" in said  # which may be the reason


@pytest.mark.parametrize("times", [1, math.inf])
def test_a_site_that_lies_ends_the_run_with_what_was_before(here, times, monkeypatch, capsys):
    def server(transport, folder, job):
        honest = transport.sites["north"]
        transport.sites["north"] = telling(honest, Late(WRONG["sign"], 5, times))
        serve(transport, folder, job)

    monkeypatch.setitem(globals(), "serve_it", server)
    keys(capsys)
    Path("trial.toml").write_text(config())
    status = bonafed("run", "trial.toml", "--engine", "flare-sim", "--sites", "sites")
    said = " ".join(capsys.readouterr().err.split())
    if times > 1:  # it lies to the certificate as well
        assert status == 2
        assert "the site north answered Evaluate with a mean loss of" in said
        (file,) = Path("runs").rglob("solution.bf")
        assert bf.load(file).outcome.stop is bf.Stop.IMPOSSIBLE
        return
    assert status == 4
    (folder,) = (path for path in Path("runs").iterdir() if path.is_dir())
    outcome = read_run(folder).result["outcome"]
    assert outcome["stop"] == "impossible"
    assert "the site north answered Evaluate with a mean loss of" in outcome["text"]
    assert bonafed("verify", str(folder), "--keys", "keys") == 0
    assert bonafed("report", str(folder), "--format", "md") == 0
    assert "if all other answers of the site that is named are true" in capsys.readouterr().out
    assert bonafed("site", "log", "sites/north") == 0


def test_few_held_out_rows_leave_the_model_and_a_note(here):
    file = Path("sites/north/site.toml")
    file.write_text(file.read_text().replace("[policy]", "[policy]\nminimum_level_rows = 27"))
    same_split("north")  # of a class fewer rows than are trained on
    run = read_run(finished(config()))
    assert run.result["evaluation"]["measures"] == []
    assert "minimum_level_rows" in run.result["notes"][-1]


def test_a_server_that_dies_after_its_model_keeps_what_was_signed(here, capsys):
    keys(capsys)
    Path("trial.toml").write_text(config(COMPARED))
    here.append(lambda asked: [*Path("runs").rglob("solution.bf")])
    assert bonafed("run", "trial.toml", "--engine", "flare-sim", "--sites", "sites") == 130
    (server,) = Path("runs/over-sites.partial/engine/server").iterdir()
    assert (server / "solution.bf").exists()
    assert not (server / "done").exists()
    assert bonafed("run", "--resume", "runs/over-sites.partial") == 0
    (folder,) = (path for path in Path("runs").iterdir() if path.is_dir())
    assert bonafed("verify", str(folder), "--keys", "keys") == 0


ODD_RESULTS = {
    "no models": lambda run: replace(run, names=(), solutions=()),
    "another model": lambda run: replace(run, names=("\x1b[31mred",)),
    "no solution": lambda run: replace(run, solutions=(None,)),
    "other sites": lambda run: replace(run, introductions=run.introductions[1:]),
    "no facts": lambda run: replace(run, introductions=(1, 2, 3)),
    "no evaluation": lambda run: replace(run, evaluation="[]"),
    "odd notes": lambda run: replace(run, notes=(1,)),
    "something else": lambda run: run.introductions[0],
}


@pytest.mark.parametrize("change", ODD_RESULTS.values(), ids=ODD_RESULTS)
def test_a_result_that_no_run_has_is_refused(here, change, monkeypatch, capsys):
    def server(transport, folder, job):
        serve(transport, folder, job)
        result = decode((folder / "result.bft").read_bytes())
        (folder / "result.bft").write_bytes(encode(change(result)))

    monkeypatch.setitem(globals(), "serve_it", server)
    Path("trial.toml").write_text(config("[algorithm]\nmax_rounds = 2\n"))
    assert bonafed("run", "trial.toml", "--engine", "flare-sim", "--sites", "sites") == 2
    assert "result.bft" in capsys.readouterr().err
    assert [path.name for path in Path("runs").iterdir()] == ["over-sites.partial"]


def test_held_out_rows_are_asked_about_a_few_times_only(here):
    file = Path("sites/north/site.toml")
    file.write_text(file.read_text().replace("[policy]", "[policy]\nmaximum_judgements = 2"))
    for k in range(3):
        shutil.rmtree("runs", ignore_errors=True)
        run = read_run(finished(config(f"[clients]\nradius = 0.{k + 1}\n")))
        assert len(run.result["evaluation"]["measures"]) == (k < 2)
    assert "maximum_judgements" in run.result["notes"][-1]


def keys(capsys) -> None:
    """Let all sites sign."""
    Path("keys").mkdir()
    for name in NAMES:
        file = Path("sites", name, "site.toml")
        file.write_text(file.read_text().replace("[data]", 'key = "site.key"\n\n[data]'))
        assert bonafed("site", "key", f"sites/{name}") == 0
        Path("keys", f"{name}.pub").write_text(capsys.readouterr().out)


def test_signed_runs_are_verified_by_keys(here, capsys):
    keys(capsys)
    folder = finished(config(CONSTRAINED))
    assert bonafed("verify", str(folder), "--keys", "keys") == 0
    # a server that states a better weight of a client than what was signed
    result = json.loads((folder / "result.json").read_text())
    result["clients"][0]["loss"] -= 0.01
    result |= {"seal": seal(result)}
    (folder / "result.json").write_text(json.dumps(result))
    capsys.readouterr()
    assert bonafed("verify", str(folder), "--keys", "keys") == 1
    assert "FAILED      clients" in capsys.readouterr().out
    beside = next(Path("runs").glob("*.signed.bft"))
    assert not beside.stat().st_mode & 0o077
    beside.rename("elsewhere.bft")
    assert bonafed("verify", str(folder), "--keys", "keys") == 2
    assert "--signed" in capsys.readouterr().err


ODD = {
    'client = "sex"': "`client` beside `sites`",
    'path = "rows.csv"': "`path` beside `sites`",
    'encoding = "latin-1"': "`encoding` beside `sites`",
    'features = ["age"]': "`columns`, which say",
    'positive = "sick"': "positive = 'sick', which is none of `classes`",
}


@pytest.mark.parametrize("line", ODD)
def test_what_is_the_site_s_affair_is_refused(line):
    with pytest.raises(
        bf.ConfigError if hasattr(bf, "ConfigError") else ValueError, match=ODD[line]
    ):
        parse_config(config(data=line))


TABLES = {
    '[robust]\nradius = "auto"\n': "'auto' is read off the rows",
    '[sweep]\nparameter = "robust.radius"\nvalues = [0.1]\n': r"\[sweep\] needs all rows",
    '[risk]\nname = "superquantile"\ntail = 0.1\n': "risk.name needs the rows",
    '[engine]\nkind = "virtual_clock"\n': "simulates time",
    '[report]\ncompare_with = ["wafl"]\n': "pools the rows",
}


@pytest.mark.parametrize("table", TABLES)
def test_what_needs_all_rows_in_one_place_is_refused(table):
    with pytest.raises(ValueError, match=TABLES[table]):
        parse_config(config(table))


def test_classes_are_declared():
    text = config().replace('classes = ["ill", "well"]\n', "")
    with pytest.raises(ValueError, match=r"needs data\.classes"):
        parse_config(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trial.toml",), "run it with --engine"),
        (("trial.toml", "--engine", "flare"), "needs --kit"),
        (("trial.toml", "--engine", "flare-sim", "--kit", "."), "takes no --kit"),
        (("trial.toml", "--engine", "abacus"), "must be one of"),
        (("trial.toml", "--engine", "flare-sim"), "no folder below"),
        (("trial.toml", "--sites", "sites"), "give --engine as well"),
        (("rows.toml", "--engine", "flare-sim"), "reads rows itself"),
    ],
)
def test_wrong_commands_say_what_is_needed(here, arguments, said, capsys):
    Path("trial.toml").write_text(config())
    Path("rows.toml").write_text('[data]\npath = "rows.csv"\ntarget = "state"\n')
    assert bonafed("run", *arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("to", ["flare", "flower"])
def test_a_job_is_exported_without_data_and_the_same_each_time(here, to, capsys):
    if to == "flower":
        pytest.importorskip("tomli_w")
    Path("trial.toml").write_text(config(COMPARED))
    written = []
    for out in ("one", "two"):
        asked = ("trial.toml", "--to", to, "--out", out, "--experiment", "trial")
        assert bonafed("engine", "export", *asked) == 0
        files = sorted(path for path in Path(out).rglob("*") if path.is_file())
        written.append({path.relative_to(out): digest(path.read_bytes()) for path in files})
        cells = [str(cell) for cell in rows_of("north")["age"][:20]]
        for path in files:
            data = path.read_bytes()
            assert not any(cell.encode() in data for cell in cells)
    capsys.readouterr()
    assert written[0] == written[1]
    assert CLASSES
    assert bonafed("engine", "export", "trial.toml", "--to", "abacus") == 2


def test_rounds_of_a_server_elsewhere_are_shown_and_nothing_else(tmp_path):
    seen = []

    class Shown(runs.Progress):
        def watch(self, model):
            return lambda row, state: seen.append((model, row["round"], row["seconds"]))

    odd = [
        "no JSON",
        "[" * 100_000,
        "\xff\xfe",
        *map(json.dumps, (7, [], None, {}, {"model": "DRFL"}, {"model": [], "round": 2})),
        json.dumps({"model": "\x1b[2Jother", "round": 2}),
        json.dumps({"model": "DRFL", "round": "\x1b[2J"}),
        json.dumps({"model": "DRFL", "round": 2, "time": "soon"}),
    ]
    file = tmp_path / "progress.jsonl"
    follow = runs._Follower(file, Shown(), ["DRFL", "ERM"])
    follow.look()
    file.write_bytes(
        "\n".join([*odd, '{"model": "DRFL", "round": 1, "time": 0.5}\n']).encode("latin")
    )
    follow.look()
    with file.open("a") as lines:
        lines.write('{"model": "DRFL", "round": 2, "time": 0.75}\n{"model": "ERM", "rou')
    follow.look()
    assert seen == [("DRFL", 1, 0.5), ("DRFL", 2, 0.25)]


# ------------------------------------------------------------------------------------ private runs

PRIVATE = """
[privacy]
epsilon = 0.9
delta = 1e-5
sizes = {sizes}

[algorithm]
max_rounds = 6
{rest}
"""
SIZES = "{ east = 60, north = 50, south = 70 }"


def private(
    rest: str = "", sizes: str = SIZES, test: float = 0.0, report: str = "html = false"
) -> str:
    text = config(PRIVATE.format(sizes=sizes, rest=rest), report=report).replace(
        "test = 0.3", f"test = {test}"
    )
    for column in ("age", "dose", "stay"):
        text = text.replace(f"{column} = {{}}", f"{column} = {{ min = -5, max = 5 }}")
    return text


@pytest.fixture
def private_sites(here, tmp_path):
    for name in NAMES:
        with (tmp_path / "sites" / name / "site.toml").open("a") as file:
            file.write("maximum_epsilon = 1.0\nmaximum_delta = 1e-5\n")
    return here


@pytest.mark.parametrize("sizes", [SIZES, "60"])
def test_a_private_run_has_a_folder_without_a_number_that_was_not_paid_for(
    private_sites, sizes, capsys
):
    keys(capsys)
    run = read_run(finished(private(sizes=sizes, report="")))
    assert run.private
    assert run.owner is None
    assert not (run.path / "owner").exists()
    assert not (run.path / "events.bft").exists()
    assert [row["n"] for row in run.result["clients"]] in ([60, 50, 70], [60, 60, 60])
    assert run.result["certificate"] is None
    assert run.result["privacy"]["epsilon"] <= 0.9
    assert len(run.history) == 6
    assert bonafed("verify", str(run.path)) == 0
    assert bonafed("verify", str(run.path), "--keys", "keys") == 0
    page = (run.path / "report.html").read_text()
    assert "charged it in its own privacy ledger" in page
    assert "owner/" not in page
    (run.path / "owner").mkdir()
    with pytest.raises(RunError, match="a private run over sites has none"):
        read_run(run.path)


def test_a_site_tells_a_private_run_the_declared_number_of_its_rows(private_sites):
    """The rows of a site and one less: what its server is told is the same, noise apart."""
    texts = []
    for rows in (120, 119):
        table = Path("sites/north/rows.csv").read_text().splitlines()
        Path("sites/north/rows.csv").write_text("\n".join(table[: rows + 1]) + "\n")
        sizes = {"east": 60, "north": 50, "south": 70}
        problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(0.9, 1e-5, sizes=sizes))
        ask = Introduce(np.frombuffer(statement_bytes(problem), np.uint8), "", roles().text())
        with closing(open_party(Path("sites/north"), "north")) as party:
            told = decode(party.answer("server", encode(Envelope("one", "north", 1, ask)))).body
        texts.append(encode(replace(told, digest="")))  # which a secret of the site makes
    assert texts[0] == texts[1]


def test_a_second_private_run_is_refused_by_the_ledgers_of_the_sites(private_sites, capsys):
    finished(private())
    assert bonafed("run", "trial.toml", "--engine", "flare-sim", "--sites", "sites") == 2
    assert "maximum_epsilon" in capsys.readouterr().err


def test_a_private_run_says_before_what_it_will_cost(private_sites, capsys):
    Path("trial.toml").write_text(private())
    assert bonafed("run", "--dry-run", "trial.toml") == 0
    said = capsys.readouterr().out
    assert "180 of 3 clients" in said
    assert "nothing was run" in said


WITHOUT = {
    "sizes": (private().replace(f"sizes = {SIZES}", ""), r"privacy\.sizes is needed"),
    "other sites": (private(sizes="{ east = 60, west = 50 }"), r"privacy\.sizes is needed"),
    "book": (private().replace("[algorithm]", 'book = "l.json"\n[algorithm]'), r"privacy\.book"),
    "sweep": (
        private() + '[sweep]\nparameter = "privacy.epsilon"\nvalues = [0.5]\n',
        r"\[sweep\] needs all rows",
    ),
    "rehearsal": (private().replace("[algorithm]", "rehearsal = true\n[algorithm]"), "rehearsal"),
    "erm": (private('[report]\ncompare_with = ["erm"]'), "without noise by a server"),
    "held out": (private(test=0.3), r"set data\.test = 0"),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_what_a_private_run_over_sites_cannot_have_is_refused(what):
    text, why = WITHOUT[what]
    with pytest.raises(ValueError, match=why):
        parse_config(text)
