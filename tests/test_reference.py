"""Every public name has an example in its docstring, and the example runs."""

from __future__ import annotations

import ast
import doctest
from importlib import import_module
from pathlib import Path

import pytest

from bonafed.names import by_module

NAMES = [(module, name) for module, names in by_module().items() for name in names]


def docstring(module: str, name: str) -> str:
    """The docstring of a public name as it is written; that of a constant stands after it."""
    tree = ast.parse(Path(str(import_module(module).__file__)).read_text(encoding="utf-8"))
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if [getattr(target, "id", None) for target in targets] == [name]:
                return str(ast.literal_eval(after.value))
    return ""


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[name for _, name in NAMES])
def test_the_example_of_a_public_name_runs(
    module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where examples may write
    text = docstring(module, name)
    assert "\nExamples\n--------\n" in text, f"the docstring of {name} has no section Examples"
    test = doctest.DocTestParser().get_doctest(text, {}, name, module, None)
    shown = " ".join(example.source + example.want for example in test.examples)
    assert name.lower() in shown.lower(), "an example shows what it is of"
    assert not any(example.options for example in test.examples), "every line runs and is compared"
    failed: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=failed.append)
    assert not failed, "".join(failed)
