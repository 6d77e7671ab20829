"""The law of the folder: every key of every file of a run is computed again, signed by a site, or
listed as not checked, in every kind of run.

A forger changes one thing and makes all digests anew (`border.forging`). Then a check fails, or the
place is among the keys that `quorate verify` lists (`is_listed`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest
import small_run
import test_forgeries
from border.forging import Forgery, forgeries
from border.remembered import remember
from border.site_runs import SiteRun, finished
from sites.test_run_at_sites import COMPARED, CONSTRAINED, config, private

from quorate.config.config import Config, ConfigError, read_config
from quorate.runs import folder_checks, verification
from quorate.runs.checks import Check, is_listed, passed
from quorate.runs.files import RunError
from quorate.runs.result import data_digests
from quorate.runs.sections import section
from quorate.runs.splits import Parts, prepare
from quorate.runs.verification import verify_run
from quorate.sites import run_checks, signed_answers
from quorate.sites.run import roles_of, signed_beside
from quorate.sites.run_checks import verify_at_sites
from quorate.statements import statement_bytes

Verify = Callable[[Path], list[Check]]
FEW = 4  # of so many forgeries one is tried, where a kind of run is much like another one
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
    verification: ("certify_run", "certify_ranks", "certify_constrained", "evaluate", "calibrated"),
    folder_checks: ("calibrated",),
    section: ("triviality",),
    signed_answers: ("answered", "proof_of"),
    run_checks: ("answered", "proof_of", "judged_again"),
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


@pytest.fixture(scope="module")
def at_sites(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SiteRun]:
    """The finished run of a kind over sites."""
    known: dict[str, SiteRun] = {}

    def run_of(kind: str) -> SiteRun:
        if kind not in known:
            policy = BUDGET if kind == "private" else ""
            known[kind] = finished(tmp_path_factory.mktemp("run"), AT_SITES[kind][0], policy)
        return known[kind]

    return run_of


@pytest.mark.parametrize("kind", AT_SITES)
def test_of_a_run_over_sites_each_key_is_computed_again_signed_or_listed(
    at_sites: Callable[[str], SiteRun], kind: str
) -> None:
    run, whole = at_sites(kind), AT_SITES[kind][1]
    of = tried(run.path, 1 if whole else FEW)
    assert [*unseen(run.path, partial(verify_at_sites, keys=run.keys), of)] == []
    assert len(of) >= (250 if whole else 25)


@pytest.mark.parametrize("kind", ["compared", "constrained", "numbers"])
def test_without_keys_more_is_listed_and_nothing_is_left_out(
    at_sites: Callable[[str], SiteRun], kind: str
) -> None:
    run = at_sites(kind)
    assert [*unseen(run.path, verify_at_sites, tried(run.path, FEW))] == []


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


def test_the_law_fails_where_a_check_is_missing(tmp_path: Path) -> None:
    path, parts = run_here(tmp_path, "cut")

    def verify(copy: Path) -> list[Check]:
        return [check for check in verify_run(copy, parts) if check.name != "clients"]

    of = [one for one in forgeries(path) if one.place == "result.json: clients.loss"]
    assert [*unseen(path, verify, of)] != []
