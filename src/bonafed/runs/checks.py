"""Checks of a finished run, and the comparison of stated numbers with numbers computed again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bonafed.runs.files import Row, digest, seal

# relative: values computed again on another machine agree to rounding, not bit for bit
CLOSE = 1e-9
# differences of numbers of the size of the objective, which have its rounding, not their own
DIFFERENCES = {"gap", "stationarity", "complementarity", "feasibility", "residuals", "infeasible"}
DIFFERENCES |= {"constraint_values", "server_values", "shared_values", "violation", "measured"}
DIFFERENCES |= {"slack", "price", "held_measured", "gradient_scale"}
DIFFERENCES |= {"less", "margin", "risk_less", "risk_margin"}  # of losses
RELATIVE = "relative_gap"  # such a difference over the objective


@dataclass(frozen=True)
class Check:
    """One thing that was checked, or could not be.

    Attributes
    ----------
    ok : None where nothing was checked
    checkable : False of what nothing in the folder or the data could show to be right or wrong,
        such as how long a run took: it is listed, and does not make a verification incomplete as
        absent data do. ``text`` says why
    keys : what was not checked, each as "FILE: KEY.KEY", with all that stands below it; positions
        in lists are left out, as in "result.json: clients.bytes_up". A key that ends with "/" is a
        beginning of names, as "baselines.safetensors: erm/" of all arrays that prove its bound
    """

    name: str
    ok: bool | None
    text: str
    checkable: bool = True
    keys: tuple[str, ...] = ()


def not_checked(name: str, why: str, *keys: str) -> Check:
    """What is stated and nothing can check, with its ``keys``."""
    return Check(name, None, why, checkable=False, keys=keys)


def nothing(name: str, odd: Sequence[object], well: str, ill: str, most: int = 5) -> Check:
    """That there is nothing ``odd``; how that is said, and what is said of the first ones."""
    return Check(name, not odd, f"{ill}: {', '.join(map(str, odd[:most]))}" if odd else well)


def is_listed(place: str, checks: Sequence[Check]) -> bool:
    """Whether a key, such as "result.json: seconds", is among those that were not checked."""
    keys = {key for check in checks if check.ok is None for key in check.keys}
    below = tuple(key if key.endswith("/") else f"{key}{end}" for key in keys for end in ".:")
    return place in keys or place.startswith(below)


def in_words(keys: Sequence[str]) -> list[str]:
    """The keys that were not checked, a line for each file."""
    by_file: dict[str, list[str]] = {}
    for key in keys:
        file, _, inside = key.partition(": ")
        by_file.setdefault(file, []).append(inside)
    parts = by_file.items()
    return [f"in {file}: {', '.join(p)}" if all(p) else f"all of {file}" for file, p in parts]


def check_files(path: Path, result: Row, needed: set[str], where: str) -> Iterator[Check]:
    """The files of a folder are those that its ``result`` names, as they were written, the
    ``needed`` among them.
    """
    named = result.get("files", {})
    for name, expected in named.items():
        file = path / name
        if not file.is_file():
            yield Check(name, False, "is missing")
        elif digest(file.read_bytes()) != expected:
            yield Check(name, False, "was changed after the run: its digest differs")
    sealed = result.get("seal") == seal(result) and needed <= {*named}
    text = f"{len(named)} files as written, seal {result.get('seal')}"
    text = text if sealed else "was changed: its seal differs"
    yield Check(where, sealed, text)


def compared(
    name: str, stated: object, again: object, scale: float = 1.0, floor: float | None = None
) -> Check:
    """Every number against its recomputation, relative to its size or a floor, whichever is larger.

    The floor of differences of losses is the ``scale`` of the objective. That of other numbers is
    1, or the scale where it is smaller, or ``floor``.
    """
    scale = max(scale, 1e-12)
    floor = min(scale, 1.0) if floor is None else floor
    odd = list(_differences(stated, again, name, scale, floor))
    if not odd:
        return Check(name, True, "as stated")
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    return Check(name, False, f"differs: {'; '.join(odd[:3])}{more}")


def _differences(
    a: object, b: object, place: str, scale: float, floor: float, key: str = ""
) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            pair = a.get(key, "absent"), b.get(key, "absent")
            yield from _differences(*pair, f"{place}.{key}", scale, floor, key)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for k, pair in enumerate(zip(a, b, strict=True)):
            yield from _differences(*pair, f"{place}[{k}]", scale, floor, key)
    elif not _same(a, b, scale if key in DIFFERENCES else 1.0 if key == RELATIVE else floor):
        yield f"{place} is stated as {a!r} and is {b!r}"


def _same(a: object, b: object, floor: float) -> bool:
    truths = isinstance(a, bool) or isinstance(b, bool)
    if isinstance(a, int | float) and isinstance(b, int | float) and not truths:
        return abs(a - b) <= CLOSE * max(abs(a), abs(b), floor)
    return type(a) is type(b) and a == b


def passed(checks: Sequence[Check], without_data: bool = False) -> bool:
    """Whether everything that can be checked was, and is right; ``without_data``: whether nothing
    is wrong.
    """
    unseen = (None,) if without_data else ()
    return all(each.ok or not each.checkable or each.ok in unseen for each in checks)
