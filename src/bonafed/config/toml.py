"""Keys and values as TOML writes them."""

from __future__ import annotations


def toml_line(key: str, value: object) -> str:
    """A line of TOML."""
    return f"{key} = {toml_value(value)}"


def toml_value(value: object) -> str:
    """A value as TOML writes it."""
    import tomli_w

    if isinstance(value, list | tuple):  # on one line
        return f"[{', '.join(map(toml_value, value))}]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").strip().replace("\t", "\\t")


def toml_key(name: str) -> str:
    """A key as TOML writes it, in quotes where it needs them."""
    import tomli_w

    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")
