"""Values whose parameters can be read and replaced by name, as scikit-learn's searches do."""

from dataclasses import fields, replace
from typing import Any, Self


class Parameters:
    """The base of frozen values, such as risks, that a search may vary: ``risk__tail``.

    scikit-learn's ``clone`` keeps such a value as it is, since nothing changes it.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        stated: Any = self
        return {field.name: getattr(self, field.name) for field in fields(stated) if field.init}

    def set_params(self, **params: Any) -> Self:
        """Another value with these parameters; this one stays as it is.

        Raises ``ValueError`` for a name that it does not have.
        """
        stated: Any = self
        known = self.get_params()
        if odd := [name for name in params if name not in known]:
            raise ValueError(
                f"{type(self).__name__} has no parameter {odd[0]!r}, it has {', '.join(known)}."
            )
        return replace(stated, **params)

    def __sklearn_clone__(self) -> Self:
        return self
