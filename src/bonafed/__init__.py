"""bonafed: federated optimization you can trust.

Train models over data that stays with its owners; every result states what is guaranteed and how it
was checked.

    import bonafed as bf
    fed = bf.Federation.from_arrays(X, y, groups)
    problem = bf.Problem(
        loss=bf.Hinge(),
        over_samples=bf.WassersteinBall(0.05, 0.5),
        over_clients=bf.LpBall(0.1),
    )
    solution = bf.solve(problem, fed)

A public name is imported on first use, so that ``import bonafed`` and ``bonafed --help`` stay fast.
The names are listed in ``names.py``; ``__init__.pyi`` has them for type checkers and editors.
"""

import lazy_loader

from bonafed.names import by_module

__version__ = "0.1.0"

_homes = {module.removeprefix(f"{__name__}."): names for module, names in by_module().items()}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_homes)
__all__.append("__version__")
