"""`docs/equations.md` names all numbered equations of each paper, each cited under one title."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# by room: the section of docs/equations.md, and the number of the paper's last equation, as counted
# in the papers' texts, whose appendices go on where the main text ends
LAST = {
    "drfl": ("Distributionally robust federated learning", 22),
    "aspire": ("ASPIRE-EASE", 38),
    "constrained": ("Constrained federated learning", 86),
    "dp_iadmm": ("Private ADMM", 37),
    "rank": ("Rank-based losses", 28),
}


def equations(section: str) -> set[int]:
    """The numbers in a section: (7), (4a), or the ends and the middle of (22)–(31)."""
    page = (ROOT / "docs" / "equations.md").read_text("utf-8")
    (text,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    text = re.sub(r"`[^`]*`", "", text)
    single = {int(n) for n in re.findall(r"\((\d+)[a-z]?\)", text)}
    for first, last in re.findall(r"\((\d+)[a-z]?\)(?:–|-| to )\((\d+)[a-z]?\)", text):
        single |= {*range(int(first), int(last) + 1)}
    return single


@pytest.mark.parametrize("room", LAST)
def test_every_numbered_equation_is_named(room: str) -> None:
    section, last = LAST[room]
    named = equations(section)
    assert [n for n in range(1, last + 1) if n not in named] == []
    assert max(named) == last, "the paper has no such equation"


# ---- titles

# by room: the family names of the authors, and the title as it stands above the paper
TITLES = {
    "drfl": (
        ("Bai", "Wong", "Qiao", "Ho"),
        "Distributionally Robust Federated Learning: An ADMM Algorithm",
    ),
    "aspire": (
        ("Jiao", "Yang", "Song"),
        "Federated Distributionally Robust Optimization with Non-Convex Objectives: Algorithm and"
        " Analysis",
    ),
    "constrained": (
        ("He", "Peng", "Sun"),
        "Federated Learning with Convex Global and Local Constraints",
    ),
    "dp_iadmm": (("Ryu", "Kim"), "Differentially Private Federated Learning via Inexact ADMM"),
    "rank": (
        ("Xiao", "Ge", "Jiang", "Yan"),
        "A Unified Framework for Rank-based Loss Minimization",
    ),
}
CITING = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
INITIALS = r"(?:[A-Z]\. )*"


@pytest.mark.parametrize("room", TITLES)
def test_each_paper_is_cited_under_one_title(room: str) -> None:
    names, title = TITLES[room]
    authors = r",? (?:and )?".join(INITIALS + name for name in names)
    cited = 0
    for path in CITING:
        # as it reads: without line breaks and the signs of comments and headings
        text = re.sub(r"\s*\n\s*#*\s*", " ", path.read_text("utf-8"))
        for found in re.findall(rf"\b{authors}[,.:]? \(?\*([^*]+)\*", text):
            # the part before the colon is enough
            said = found.strip().casefold()
            assert said in (title.casefold(), title.partition(":")[0].casefold()), path
            cited += 1
    assert cited
    assert title in (ROOT / "CITATION.cff").read_text("utf-8")
    printed = ROOT / "src" / "bonafed" / "papers" / room / "printed.toml"
    if printed.exists():
        assert tomllib.loads(printed.read_text("utf-8"))["title"].casefold() == title.casefold()
