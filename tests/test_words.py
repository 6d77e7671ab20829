"""The words of pages, docstrings, messages and examples are those of a textbook: patterns that read
as a translation are found and named with what to write instead.

The rules look at forms of words, not at meaning: a new text that is right and caught goes into
``RIGHT`` with its words.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bonafed"
GUIDE = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
PAGES = GUIDE + [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
NEXT = "for|in|at|that|which|where|here|and|to|is|has|such"
COMPARED = r"longer|more|less|larger|smaller|later|earlier|better|worse|shorter|further|fewer|other"
RULES = {  # pattern -> what to write
    rf"(?<!here )\b(?:is|are|was|were) no (?!(?:{COMPARED})\b)": "is not a",
    r"\b(?:nobody|somebody|anybody|everybody)'s\b": "name the people",
    r"(?<!\.)\bwhoever\b(?!\()": "anyone who, a viewer that",
    rf"\bof (?:its|their) own\b(?! (?!(?:{NEXT})\b)\w)": "its own, a separate",
    r"(?<!\bit )(?<!\bthem )(?<!\bleft )(?<!\bstands )(?<![`{\"'])"
    r"\balone\b(?![`}:\"'_]| or\b)": "only",
}
OF_PAGES = RULES | {r"\bthose (?:of|by|in|at|with|from)\b": "name the things again"}
RIGHT = (  # texts that a rule catches and that are right
    "raw, nobody slow",
)
VERBS = """
is are was were be been has have had do does did can may must will whether would shall should
    could might need take make give say see keep state use add read run write find set let choose
    know hold go come stand send tell ask answer leave prove bound follow cost move count change
    weigh learn allow work start end begin solve lie look pay show train judge get try put pass call
    name mark trust protect fit remain stay apply install declare scale compare raise serve refuse
    agree draw share differ depend belong mean want close open turn sign check cite"""
KNOWN = frozenset(VERBS.split())


def prose(text: str) -> str:
    """A page without fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def texts(path: Path) -> Iterator[str]:
    """What people read of a file: a page's prose, comments of TOML, strings of Python."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield prose(text)
    elif path.suffix == ".toml":
        yield from re.findall(r"#.*", text)
    else:
        lines = iter(text.splitlines(keepends=True))
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.STRING:
                yield token.string


def found(text: str, rules: dict[str, str]) -> list[str]:
    """The places where a rule applies, each with what to write."""
    for right in RIGHT:
        text = text.replace(right, "")
    flat = " ".join(text.split())
    return [
        f"…{flat[max(0, m.start() - 40) : m.end() + 30]}…: say {instead!r}"
        for pattern, instead in rules.items()
        for m in re.finditer(pattern, flat, re.IGNORECASE)
    ]


def sentences(text: str) -> Iterator[str]:
    """Sentences of five words or more in the paragraphs and lists of a page, formulas left out."""
    for part in re.split(r"\n\s*\n|\n\s*(?:- |\d+\. )", prose(text)):
        if part.startswith(("|", "#", "    ", "<")):
            continue
        part = re.sub(r"`[^`]*`", "code", part)
        part = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part).split())
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z*])", part):
            whole = sentence.endswith(".") and len(sentence.split()) > 4 and sentence[0].isupper()
            if whole and not re.search(r"[=<>←−]", sentence):
                yield sentence


def has_verb(sentence: str) -> bool:
    """Whether a word of a sentence can be its verb: a known one, or one that ends like one."""
    words = [word.lower() for word in re.findall(r"[a-zA-Z']+", sentence)]
    return any(w in KNOWN or re.fullmatch(r"\w\w+([^s]s|ed)", w) for w in words)


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: path.name)
def test_pages_and_examples_speak_as_a_textbook(path: Path) -> None:
    assert not [each for text in texts(path) for each in found(text, OF_PAGES)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_sentences_of_pages_have_a_verb(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not [each for each in sentences(text) if not has_verb(each)]


def test_docstrings_and_messages_speak_as_a_textbook() -> None:
    wrong = {
        str(path.relative_to(SOURCE)): places
        for path in sorted(SOURCE.rglob("*.py"))
        if (places := [each for text in texts(path) for each in found(text, RULES)])
    }
    assert not wrong


def test_foreign_words_would_be_found() -> None:
    said = (
        "This is no text. It is nobody's fault. Whoever asks has a key of their own. The words"
        " alone count, and those of others."
    )
    assert len(found(said, OF_PAGES)) == 6
    assert not found("There is no bound, it is no longer than 1, and it stays alone.", {})
    assert not has_verb("A table without the column of a person.")
    assert has_verb("A table takes a name")


def test_strings_of_python_are_read() -> None:
    tree = ast.parse((SOURCE / "measures.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree).split("\n")[0] in " ".join(texts(SOURCE / "measures.py"))


def test_pages_stay_within_their_words() -> None:
    """40,000 words, each with a letter or a digit; benchmarks 3,000, their bars counted."""
    made = ROOT / "docs" / "reproduction.md"  # the output of a command
    guide = [path for path in GUIDE if path != made]
    of = {path: path.read_text(encoding="utf-8").split() for path in guide}
    assert sum(any(map(str.isalnum, word)) for words in of.values() for word in words) <= 40_000
    assert len(of[ROOT / "benchmarks" / "README.md"]) <= 3_000
