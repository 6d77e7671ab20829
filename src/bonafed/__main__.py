"""The command ``bonafed``, also as ``python -m bonafed``: it answers Ctrl-C from its first moment,
while the command line itself is still being imported.
"""

import gc
import sys

INTERRUPTED = 130
FEW = (10_000, 10, 10)  # collections of garbage


def main() -> None:
    """Entry point of the console script."""
    gc.set_threshold(*FEW)  # what imports make lasts, and took a tenth of a run to look through
    try:
        from bonafed.cli import main as command
    except KeyboardInterrupt:
        print("bonafed: interrupted; nothing was kept", file=sys.stderr)
        sys.exit(INTERRUPTED)
    command()


if __name__ == "__main__":
    main()
