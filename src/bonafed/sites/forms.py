"""Whether a message has the form that its class says.

A site's answer is a sum over rows with the weights that its slopes say (`bonafed.sites.told`) only
where the numbers of the message are those of the whole site: an array of another shape may weigh
every row by itself.
"""

from __future__ import annotations

from typing import Any

from bonafed.codec import changed
from bonafed.engines.possible import Fields
from bonafed.rounds import visibility


def check_form(message: Any, n_clients: int) -> None:
    """Raise ``ValueError`` unless all fields of a message, as a site receives it, have the types
    and shapes of its class: of every client's numbers those of one client, and of no others' all.
    """
    marks = visibility(type(message))
    own = "each" in marks.values() or "version" in marks.values()
    told = {name: getattr(message, name) for name, mark in marks.items() if mark == "version"}
    shown = {name: _alone(name, value) for name, value in told.items() if value is not None}
    fields = Fields(1 if own else n_clients, 0)
    fields.check(changed(message, **shown), type(message), type(message).__name__)


def _alone(name: str, value: Any) -> Any:
    """The array of one client."""
    if getattr(value, "shape", ())[:1] != (1,):
        raise ValueError(f"{name} is not one client's")
    return value[0]
