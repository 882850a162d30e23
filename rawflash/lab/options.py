"""Options of experiments: the entries of conf/experiment/<name>.yaml, and whether a value given for one can be meant.

The value in the file says what kind an option has: a whole number, a number, a text, a list of such, a table. What a kind cannot say (a
kernel's name, a length that no tile divides) is for the experiment to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rawflash.config import as_text, read_yaml
from rawflash.errors import UsageError
from rawflash.paths import conf_dir

__all__ = ["check_options", "options_of"]


def options_of(name: str) -> dict[str, Any]:
    """The options of conf/experiment/`name`.yaml."""
    return dict(read_yaml(conf_dir() / "experiment" / f"{name}.yaml").get("options") or {})


def check_options(given: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Raise UsageError for the first value in `given` that is of another kind than the one in `usual`, or can be no size."""
    for name, value in given.items():
        if name in usual and (wanted := _wanted(value, usual[name])):
            raise UsageError(f"experiment.options.{name}={as_text(value)} is not {wanted}; usual is {as_text(usual[name])}")


def _wanted(value: Any, usual: Any) -> str:
    """What stands for `usual` must be, when `value` is not; "" when it is."""
    if usual is None:
        return "" if value is None or not _wanted(value, 0) or not _wanted(value, [0.0]) else "null, a number or a list of numbers"
    if isinstance(usual, bool):  # a mask is false, true or a name
        return "" if isinstance(value, bool | str) else "true, false or a name"
    if isinstance(usual, int | float):
        return _wanted_number(value, usual)
    if isinstance(usual, str):
        return "" if isinstance(value, str) and value else "a name"
    if isinstance(usual, dict):
        kinds = list(usual.values())
        right = isinstance(value, dict) and bool(value) and not any(_unlike(v, kinds) for v in value.values())
        return "" if right else "a table {name: value, ...}"
    needed = bool(usual) and not isinstance(usual[0], list | dict)  # of numbers or names; a list of whole cases may be empty
    if not isinstance(value, list) or (needed and not value):
        return "a list [a, b, ...]" + (" of at least one" if needed else "")
    return next((f"a list of which each is {why}" for v in value if (why := _unlike(v, usual))), "")


def _unlike(value: Any, usual: list[Any]) -> str:
    """What is wanted instead of an element `value` that is of the kind of none of those in `usual`; "" when it is, or any is right."""
    wanted = [_wanted(value, one) for one in usual]
    return wanted[0] if wanted and all(wanted) else ""


def _wanted_number(value: Any, usual: float) -> str:
    least = 0 if usual <= 0 else 1
    if isinstance(usual, int):
        right = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return "" if right else f"a whole number of at least {least}"
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return "" if number and (value > 0 or usual == 0) else "a number" if usual == 0 else "a number above 0"
