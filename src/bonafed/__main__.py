"""The command ``bonafed``, also as ``python -m bonafed``: it answers Ctrl-C from its first moment,
while the command line itself is still being imported.
"""

import sys

INTERRUPTED = 130


def main() -> None:
    """Entry point of the console script."""
    try:
        from bonafed.cli import main as command
    except KeyboardInterrupt:
        print("bonafed: interrupted; nothing was kept", file=sys.stderr)
        sys.exit(INTERRUPTED)
    command()


if __name__ == "__main__":
    main()
