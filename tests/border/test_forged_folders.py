"""The law of the folder: every key of every file of a run is computed again, signed by a site, or
listed as not checked, in every kind of run.

A forger changes one thing and makes all digests anew (`border.forging`). Then a check fails, or the
place is among the keys that `bonafed verify` lists (`is_listed`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import small_run
import test_forgeries
from border.carriers import FOREIGN, Call, in_process
from border.forging import Forgery, forgeries, seal
from border.remembered import remember
from border.site_runs import SiteRun, finished
from border.test_liars import WRONG, Late, telling
from safetensors import safe_open
from safetensors.numpy import load_file
from sites.test_run_at_sites import COMPARED, CONSTRAINED, config, private

import bonafed as bf
from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.codec import changed
from bonafed.config.config import Config, ConfigError, parse_config, read_config
from bonafed.engines.endings import ONE_OF
from bonafed.names import NAMED
from bonafed.runs import training, verification
from bonafed.runs.checks import Check, is_listed, passed
from bonafed.runs.files import RunError, plain, save_arrays
from bonafed.runs.folder import OWNER, data_digests
from bonafed.runs.sections import section
from bonafed.runs.sections.privacy import guarantee, withheld
from bonafed.runs.splits import Parts, prepare
from bonafed.runs.verification import verify_run
from bonafed.sites import judging, signed_answers
from bonafed.sites.judging import added_up
from bonafed.sites.run import roles_of, signed_beside
from bonafed.sites.run_checks import verify_at_sites
from bonafed.sites.signed_answers import apart, together
from bonafed.statements import statement_bytes

Verify = Callable[[Path], list[Check]]
FEW = 8  # of so many forgeries one is tried, where a kind of run is much like another one
BUDGET = "maximum_epsilon = 1.0\nmaximum_delta = 1e-5\n"
NUMBERS = config(loss="huber").replace('classes = ["ill", "well"]\n', "")
NUMBERS = NUMBERS.replace('target = "state"', 'target = "stay"').replace("stay = {}\n", "")
AT_SITES = {  # by kind its configuration, and whether every forgery is tried
    "plain": (config(), False),
    "compared": (config(COMPARED, loss="hinge"), True),
    "constrained": (
        config(
            f'{CONSTRAINED}[report]\ncompare_with = ["unconstrained"]\n', data='groups = ["sex"]'
        ),
        False,
    ),
    "cut off": (config("[algorithm]\nmax_rounds = 3\n"), False),
    "agnostic": (
        config('[clients]\nrisk = "simplex"\n[algorithm]\nname = "async_dro"\nmax_rounds = 9\n'),
        False,
    ),
    "numbers": (NUMBERS, False),
    "by another method": (
        config(
            '[robust]\nradius = 0.02\n[algorithm]\nname = "ad_lpmm"\nmax_rounds = 9\n',
            loss="hinge",
            data='positive = "ill"',
        ),
        False,
    ),
    "ended by a lie": (config(), False),
    "private": (private(), False),
    "masked": (
        config('[engine]\nsecure_sum = true\n[clients]\nrisk = "mean"\n[algorithm]\ntol = 0.1\n'),
        False,
    ),
}
HERE = {
    kind: (text, kind == "robust")
    for kind, text in {**test_forgeries.KINDS, "ranks of a client": small_run.RANKS}.items()
    if kind != "of a large objective"  # whose rounding hides small numbers
}
# computed from what most forgeries leave as it was
COMPUTED = {
    verification: ("evaluate", "calibrated"),
    training: ("certify", "certify_constrained"),
    section: ("triviality",),
    signed_answers: ("answered", "proof_of"),
    judging: ("judge_at_sites",),
}


@pytest.fixture(autouse=True)
def _computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in COMPUTED.items():
        remember(monkeypatch, module, *names)


def tried(run: Path, every: int) -> list[Forgery]:
    """The forgeries of a run, or one of so many."""
    whole = [*forgeries(run)]
    return [one for one in whole if crc32(f"{one.place} {one.name}".encode()) % every == 0]


def forged(run: Path, forgery: Forgery) -> Path | None:
    """The forged copy of a run beside it, None where no configuration is as forged."""
    copy = run.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    try:
        forgery.of(run, copy)
    except (ConfigError, ValueError):
        return None
    if signed_beside(run).is_file():
        shutil.copy(signed_beside(run), signed_beside(copy))
    return copy


def checks_of(copy: Path, verify: Verify) -> list[Check]:
    """The checks of a folder; one that fails where it cannot be read."""
    try:
        return verify(copy)
    except (RunError, ConfigError) as error:
        return [Check("folder", False, str(error))]


def unseen(run: Path, verify: Verify, of: Sequence[Forgery]) -> Iterator[str]:
    """The forgeries that no check finds, and that no list has."""
    honest = verify(run)
    assert [check for check in honest if check.ok is False] == []
    for forgery in of:
        if (copy := forged(run, forgery)) is None:
            continue
        checks = checks_of(copy, verify)
        found = any(check.ok is False for check in checks)
        found |= passed(honest) and not passed(checks)
        if not found and not is_listed(forgery.place, checks) and says_more(copy, run):
            yield f"{forgery.place}: {forgery.name}"


def says_more(copy: Path, run: Path) -> bool:
    """Whether a forged folder says anything else than the run: a setting of its configuration that
    changes neither problem nor rows says nothing.
    """
    one, other = (read_config(path / "config.toml") for path in (copy, run))
    return one.text() == other.text() or stated(one) != stated(other)


def stated(config: Config) -> object:
    """The problem and the rows of a configuration."""
    problem = statement_bytes(config.problem())
    if config.data.sites is not None:
        return problem, roles_of(config).text()
    return problem, data_digests(prepare(config))


# --------------------------------------------------------------------------------------- over sites


@contextmanager
def lying(folder: Path, name: str, wrong: str = "sign", first: int = 5) -> Iterator[Call]:
    """A site of this process; one of them gives one impossible answer."""
    with in_process(folder, name) as call:
        tell = telling(partial(call, "server"), Late(WRONG[wrong], first, 1))
        yield call if name != "north" else lambda sender, data: tell(data)


def test_a_private_run_that_a_lie_cut_short_has_a_model_and_no_folder(tmp_path: Path) -> None:
    carrier = partial(lying, wrong="nan", first=3)
    with pytest.raises(RuntimeError, match=r"the site north answered .* without its last rounds"):
        finished(tmp_path, private(), BUDGET, carrier)
    (file,) = tmp_path.rglob("solution.bf")
    assert bf.load(file).outcome.stop is bf.Stop.IMPOSSIBLE


def test_a_masked_run_that_a_lie_cut_short_names_no_site_and_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, asked = MaskedBundle.blend, list[str]()

    def blend(self: Any, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        memory, up = honest(self, memory, ask, data, rng)
        asked.append(data.names[0])
        lies = asked[-1] == "north" and asked.count("north") == 4
        return memory, changed(up, loss=-9 * up.loss) if lies else up

    monkeypatch.setattr(MaskedBundle, "blend", blend)
    text = config('[engine]\nsecure_sum = true\n[clients]\nrisk = "mean"\n')
    run = finished(tmp_path, text)
    outcome = json.loads((run.path / "result.json").read_text())["outcome"]
    assert (outcome["stop"], outcome["text"].startswith(ONE_OF)) == ("impossible", True)
    assert [check for check in verify_at_sites(run.path, run.keys) if check.ok is False] == []


@pytest.fixture(scope="module")
def at_sites(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., SiteRun]:
    """The finished run of a kind over sites, and over a carrier."""
    known: dict[object, SiteRun] = {}

    def run_of(kind: str, carrier: Any = in_process) -> SiteRun:
        if (kind, carrier) not in known:
            policy, place = BUDGET if kind == "private" else "", tmp_path_factory.mktemp("run")
            way = lying if kind == "ended by a lie" else carrier
            known[kind, carrier] = finished(place, AT_SITES[kind][0], policy, way)
        return known[kind, carrier]

    return run_of


@pytest.mark.parametrize("kind", AT_SITES)
def test_of_a_run_over_sites_each_key_is_computed_again_signed_or_listed(
    at_sites: Callable[..., SiteRun], kind: str
) -> None:
    run, whole = at_sites(kind), AT_SITES[kind][1]
    of = tried(run.path, 1 if whole else FEW)
    assert [*unseen(run.path, partial(verify_at_sites, keys=run.keys), of)] == []
    assert len(of) >= (250 if whole else 15)


@pytest.mark.parametrize("carrier", FOREIGN)
def test_of_a_run_over_a_carrier_as_well(at_sites: Callable[..., SiteRun], carrier: Any) -> None:
    run = at_sites("plain", carrier)
    of = [*{one.place: one for one in forgeries(run.path)}.values()]  # one of every key
    assert [*unseen(run.path, partial(verify_at_sites, keys=run.keys), of)] == []


WORST = '[clients]\nrisk = "simplex"\n'
ROBUST = "[robust]\nradius = 0.02\n"
BY_METHOD = {  # the tables that a method asks for, over sites
    **dict.fromkeys(("bundle", "fed_avg"), '[clients]\nrisk = "mean"\n'),
    **dict.fromkeys(("async_bundle", "async_dro", "aspire", "afl", "drfa"), WORST),
    "multiplier_method": WORST,
    **dict.fromkeys(("ad_lpmm", "epigraph_admm", "double_loop"), ROBUST),
    **dict.fromkeys(("interior_point", "proximal_al"), CONSTRAINED),
    **dict.fromkeys(("private_admm", "output_perturbed_admm", "private_sgd"), "private"),
    "private_newton": "private",
}
ELSEWHERE = {"rank_admm", "smoothed_rank_admm", "sgd", "lsvrg", "dca"}  # all rows in one place
ELSEWHERE |= {
    *("rank_interior_point", "rank_bundle", "kink_interior_point", "row_multiplier_method")
}


def by_method(name: str) -> str:
    """A configuration of a method over sites, with few rounds."""
    if BY_METHOD[name] == "private":
        return private().replace("max_rounds = 6", f'name = "{name}"\nmax_rounds = 2')
    loss = "hinge" if BY_METHOD[name] == ROBUST else "logistic"
    rest = f'{BY_METHOD[name]}[algorithm]\nname = "{name}"\nmax_rounds = 2\n'
    return config(rest, loss, data='groups = ["sex"]' if "constraint" in rest else "")


def test_every_method_is_forged_over_sites_or_runs_in_one_place() -> None:
    assert {*BY_METHOD} | ELSEWHERE == {*NAMED["algorithm"]}


@pytest.mark.parametrize("name", BY_METHOD)
def test_a_run_by_any_method_over_sites_keeps_the_law(tmp_path: Path, name: str) -> None:
    run = finished(tmp_path, by_method(name), BUDGET if BY_METHOD[name] == "private" else "")
    verify = partial(verify_at_sites, keys=run.keys)
    assert passed(verify(run.path))
    assert [*unseen(run.path, verify, tried(run.path, 4 * FEW))] == []


@pytest.mark.parametrize("kind", ["compared", "constrained", "numbers"])
def test_without_keys_more_is_listed_and_nothing_is_left_out(
    at_sites: Callable[[str], SiteRun], kind: str
) -> None:
    run = at_sites(kind)
    assert [*unseen(run.path, verify_at_sites, tried(run.path, FEW))] == []


# what a reader takes from a run, and the sites signed
RELIED_ON = {
    "compared": (
        "model.safetensors: w",
        "model.safetensors: bonafed.classes",
        "baselines.safetensors: erm",
        "result.json: problem",
        "result.json: notes",
        "result.json: certificate.value",
        "result.json: certificate.bound",
        "result.json: clients.loss",
        "result.json: clients.n",
        "result.json: data",
        "result.json: baselines.erm.value",
        "result.json: baselines.erm.bound",
        "result.json: evaluation",
        "result.json: evaluation.measures.clients.auc",
        "result.json: evaluation.pairs.margin",
    ),
    "constrained": ("result.json: constraints", "result.json: prices"),
}


@pytest.mark.parametrize("kind", RELIED_ON)
def test_with_keys_no_list_has_what_a_reader_relies_on(
    at_sites: Callable[[str], SiteRun], kind: str
) -> None:
    run = at_sites(kind)
    checks = verify_at_sites(run.path, run.keys)
    assert [place for place in RELIED_ON[kind] if is_listed(place, checks)] == []
    assert passed(checks)


def of_result(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """A change of result.json."""

    def changed(run: Path) -> None:
        result = json.loads((run / "result.json").read_text("utf-8"))
        change(result)
        (run / "result.json").write_text(json.dumps(result), "utf-8")

    return changed


def of_model(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """A change of what the model's file says of it."""

    def changed(run: Path) -> None:
        with safe_open(run / "model.safetensors", "numpy") as file:
            model, w = json.loads(file.metadata()["bonafed"]), file.get_tensor("w")
        change(model)
        save_arrays(run / "model.safetensors", {"w": w}, {"bonafed": json.dumps(model)})

    return changed


def swapped(model: dict) -> None:
    for classes in (model["classes"], model["schema"]["classes"]):
        classes.reverse()


def better(result: dict) -> None:
    for row in result["evaluation"]["measures"]:
        row["accuracy"] = 0.999


def better_counts(result: dict) -> None:
    """The same, with sites' rows, counts, totals and words that add up."""
    evaluation = result["evaluation"]
    for site in evaluation["measures"][0]["clients"]:
        cells = site["confusion"]
        cells |= {
            "tp": cells["tp"] + cells["fn"],
            "fn": 0,
            "tn": cells["tn"] + cells["fp"],
            "fp": 0,
        }
    problem = parse_config(AT_SITES["compared"][0]).problem()
    result["evaluation"] = plain(added_up(problem, ["DRFL", "ERM", "DRFA"], evaluation))


def another_baseline(run: Path) -> None:
    """The model in place of a baseline, with its numbers."""
    arrays = load_file(run / "baselines.safetensors")
    arrays["erm"] = load_file(run / "model.safetensors")["w"]
    save_arrays(run / "baselines.safetensors", arrays)
    result = json.loads((run / "result.json").read_text("utf-8"))
    result["baselines"]["erm"] |= {k: result["certificate"][k] for k in ("value", "bound", "gap")}
    (run / "result.json").write_text(json.dumps(result), "utf-8")


GUARANTEE = "minimise the mean loss; epsilon = 0.1 at delta = 1e-9 for every row"
BY_A_SERVER = {  # by what it does, the check that finds it and whether that needs the keys
    "classes swapped": ("model", False, of_model(swapped)),
    "another scale": (
        "model: age",
        False,
        of_model(lambda model: model["schema"]["columns"][0].update(scale=3.0)),
    ),
    "a privacy guarantee": ("problem", False, of_result(lambda r: r.update(problem=GUARANTEE))),
    "an invented note": ("notes", True, of_result(lambda r: r["notes"].append("Well tested."))),
    "accuracy beside another confusion": ("evaluation", False, of_result(better)),
    "counts that add up": ("signed evaluation", True, of_result(better_counts)),
    "another value of a baseline": (
        "baseline erm",
        True,
        of_result(lambda r: r["baselines"]["erm"].update(value=r["baselines"]["erm"]["value"] + 1)),
    ),
    "another baseline": ("baseline erm", True, another_baseline),
    "no figures": (
        "evaluation",
        False,
        of_result(lambda r: r.update(evaluation={"measures": [], "pairs": [], "verdict": []})),
    ),
}


@pytest.mark.parametrize("what", BY_A_SERVER)
def test_what_a_server_changes_in_a_folder_is_found(
    at_sites: Callable[[str], SiteRun], what: str
) -> None:
    found, needs_keys, change = BY_A_SERVER[what]
    run = at_sites("compared")
    copy = forged(run.path, Forgery("", what, change))
    assert copy is not None
    for keys in (run.keys, None):
        names = [check.name for check in verify_at_sites(copy, keys) if check.ok is False]
        assert (found in names) == (keys is not None or not needs_keys), names


def of_words(old: str, new: str) -> Callable[[Path], None]:
    """A change of the words about how a run ended."""

    def change(result: dict) -> None:
        assert old in result["outcome"]["text"]
        result["outcome"]["text"] = result["outcome"]["text"].replace(old, new)

    return of_result(change)


OF_A_LIE = {
    "another gap": of_words("proven relative gap", "proven relative gap 1e-9, not"),
    "no site": of_words("the site north", "the site nowhere"),
    "no condition": of_words(" Its numbers hold if all other answers of north,", " Of north,"),
    "an optimum": of_result(lambda r: r["outcome"].update(stop="optimal")),
}


@pytest.mark.parametrize("what", OF_A_LIE)
def test_what_a_lie_leaves_unsaid_is_found(at_sites: Callable[[str], SiteRun], what: str) -> None:
    run = at_sites("ended by a lie")
    assert passed(verify_at_sites(run.path, run.keys))
    copy = forged(run.path, Forgery("", what, OF_A_LIE[what]))
    assert copy is not None
    names = [check.name for check in verify_at_sites(copy, run.keys) if check.ok is False]
    assert "outcome" in names


@pytest.mark.parametrize("part", ["erm", "held out"])
def test_without_a_part_of_the_signed_answers_a_verification_is_incomplete(
    at_sites: Callable[[str], SiteRun], part: str
) -> None:
    run = at_sites("compared")
    files = apart(signed_beside(run.path).read_bytes())
    assert [*files] == ["model", "erm", "drfa", "held out"]
    cut = run.path.with_name("cut.bft")
    cut.write_bytes(together({name: file for name, file in files.items() if name != part}))
    checks = verify_at_sites(run.path, run.keys, cut)
    assert not passed(checks)
    assert passed(checks, without_data=True)
    place = "evaluation.measures.clients.confusion" if part == "held out" else "baselines.erm.value"
    assert is_listed(f"result.json: {place}", checks)


def test_signed_answers_of_another_model_do_not_pass_for_a_baseline_s(
    at_sites: Callable[[str], SiteRun],
) -> None:
    run = at_sites("compared")
    files = apart(signed_beside(run.path).read_bytes())
    other = run.path.with_name("other.bft")
    other.write_bytes(together(files | {"erm": files["drfa"], "held out": files["model"]}))
    checks = verify_at_sites(run.path, run.keys, other)
    names = [check.name for check in checks if check.ok is False]
    assert names == ["baseline erm", "signed evaluation"]


def test_a_larger_budget_than_the_sites_agreed_to_is_found_by_their_keys(
    at_sites: Callable[[str], SiteRun],
) -> None:
    run = at_sites("private")

    def larger(copy: Path) -> None:
        file = copy / "config.toml"
        file.write_text(file.read_text("utf-8").replace("epsilon = 0.9", "epsilon = 9.0"), "utf-8")
        config = read_config(file)

        def stated(result: dict) -> None:
            spent = result["privacy"]["releases"], result["privacy"]["before"]
            result["privacy"] = guarantee(config, len(config.data.columns or {}), *spent)
            result["problem"] = config.sentence()
            result["withheld"] = withheld(config)

        of_result(stated)(copy)

    copy = forged(run.path, Forgery("", "a larger budget", larger))
    assert copy is not None
    assert passed(verify_at_sites(copy))
    failed = [check.name for check in verify_at_sites(copy, run.keys) if check.ok is False]
    assert failed == ["site east", "site north", "site south"]


# ------------------------------------------------------------------------------------- in one place


def run_here(folder: Path, kind: str) -> tuple[Path, Parts]:
    """The finished run of a kind, and its rows."""
    make = small_run.private_run if kind == "private" else small_run.small_run
    run = make(folder, text=HERE[kind][0], data=test_forgeries.DATA.get(kind))
    return run.path, prepare(run.config)


@pytest.mark.parametrize("kind", HERE)
def test_of_a_run_in_one_place_each_key_is_computed_again_or_listed(
    tmp_path: Path, kind: str
) -> None:
    path, parts = run_here(tmp_path, kind)
    of = tried(path, 1 if HERE[kind][1] else FEW)

    def verify(copy: Path) -> list[Check]:
        one, other = ((run / "config.toml").read_bytes() for run in (copy, path))
        return verify_run(copy, parts if one == other else None)

    assert [*unseen(path, verify, of)] == []


def test_without_its_owner_s_part_a_private_run_lists_more(tmp_path: Path) -> None:
    path, parts = run_here(tmp_path, "private")
    shutil.rmtree(path / OWNER)
    seal(path)
    verify = partial(verify_run, parts=parts)
    assert [*unseen(path, verify, tried(path, FEW))] == []


def test_without_its_data_a_run_lists_what_only_they_show(tmp_path: Path) -> None:
    path, _ = run_here(tmp_path, "robust")
    (tmp_path / "clinics.csv").unlink()
    assert [*unseen(path, verify_run, tried(path, FEW))] == []
    assert not passed(verify_run(path))


def test_the_law_fails_where_a_check_is_missing(tmp_path: Path) -> None:
    path, parts = run_here(tmp_path, "cut")

    def verify(copy: Path) -> list[Check]:
        return [check for check in verify_run(copy, parts) if check.name != "clients"]

    of = [one for one in forgeries(path) if one.place == "result.json: clients.loss"]
    assert [*unseen(path, verify, of)] != []
