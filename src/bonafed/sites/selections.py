"""The choices that a site answers for: of columns one for each target, and of held-out rows one for
all targets, since two would tell the rows in which they differ.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from bonafed.sites.guard import Guard, refuses
from bonafed.sites.rows import Roles
from bonafed.storage import OWN, make_folder, write_whole

SELECTIONS = "selections"  # the folder of what was answered for
SPLIT = "split"  # its file of which rows are held out, for all targets


@dataclass(frozen=True)
class Selections:
    """What a site has answered for; ``folder`` is where it is kept."""

    folder: Path
    guard: Guard

    def check(self, roles: str) -> None:
        """Raise `RefusedByPolicyError` for another choice of columns or held-out rows than the one
        that the site has answered for.
        """
        policy = self.guard.policy
        if policy is None or not policy.one_selection:
            return
        kept = [(file, one) for file, one in self._chosen(roles).items() if file.exists()]
        if others := [str(file) for file, one in kept if file.read_bytes() != one.encode()]:
            text = "the site has answered for another choice of columns of this target, or of the"
            text += " rows that are held out for all targets"
            do = f"Remove {' and '.join(others)} to allow one more choice"
            raise refuses("one_selection", text, do, ask="Ask for the same ones, or ask its owner")

    def bind(self, roles: str) -> None:
        """Keep a choice that the site answers for from now on."""
        for file, choice in self._chosen(roles).items():
            if not file.exists():
                make_folder(self.folder)
                write_whole(file, choice.encode(), OWN)

    def _chosen(self, roles: str) -> dict[Path, str]:
        """What a server chooses, by the file of the one choice that the site answers for; nothing
        where it does not choose.
        """
        if not roles:
            return {}
        asked = Roles.of(roles)
        return {self.folder / SPLIT: asked.split(), self.folder / plain_name(asked.target): roles}


def plain_name(name: str) -> str:
    """A name for a file, whatever the server's name is made of."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]
