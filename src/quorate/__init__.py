"""quorate: federated optimization you can trust.

Train models over data that stays with its owners; every result states what is guaranteed and how it
was checked.

    import quorate as qr
    fed = qr.Federation.from_arrays(X, y, groups)
    problem = qr.Problem(
        loss=qr.Hinge(),
        over_samples=qr.WassersteinBall(0.05, 0.5),
        over_clients=qr.LpBall(0.1),
    )
    solution = qr.solve(problem, fed)

A public name is imported on first use, so that ``import quorate`` and ``quorate --help`` stay fast.
The names are listed in ``names.py``; ``__init__.pyi`` has them for type checkers and editors.
"""

import lazy_loader

from quorate.names import by_module

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        module.removeprefix(f"{__name__}."): names for module, names in by_module().items()
    },
)
__all__.append("__version__")
