"""Hydra's and OmegaConf's complaints, in one sentence each.

Only what the exceptions carry is looked at (names, keys, values, texts), so that this module needs neither library.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["explain", "internal_error"]

_KINDS = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "string": "text"}
_TYPES = {"int": "a whole number", "bool": "true or false", "str": "a name"}

# The first word of a command line, when it is no key=value.
_COMMANDS = ("calculator", "compare", "doctor", "speed", "sync")

# Launchers that come with a package of their own, and the extra that brings it.
_EXTRAS = {"joblib": "joblib", "submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray", "ray_aws": "ray"}


def explain(error: BaseException, unknown_key: Callable[[str], str]) -> str | None:
    """The sentence for an error of Hydra's, or None when `error` is of another kind.

    `unknown_key` words the answer to a key that does not exist.
    """
    for translate in (_missing_option, _ambiguous, _grammar):
        sentence = translate(error)
        if sentence:
            return sentence
    cause = error
    while cause is not None:
        if type(cause).__module__.startswith("omegaconf"):
            return _value(cause, unknown_key)
        cause = cause.__cause__  # type: ignore[assignment]
    if "Config group override" in str(error):
        return "a group takes the name of one of its options: write group=option (`rawflash --help` lists them)"
    if type(error).__module__.startswith("hydra"):
        return " ".join(str(error).split())
    if type(error).__module__.startswith("yaml"):
        return f"a configuration file is no YAML: {' '.join(str(error).split())}"
    return None


def internal_error(error: BaseException) -> str:
    """One sentence for an error that nobody foresaw, with the place where it happened."""
    if isinstance(error, ImportError):
        return f"a package that rawflash needs cannot be imported ({error}): install it again with pip; add debug=true for the traceback"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"internal error: {type(error).__name__}: {error}{place}; add debug=true for the traceback"


def _missing_option(error: BaseException) -> str | None:
    """kernel=fa9: the group exists, the option does not."""
    missing = getattr(error, "missing_cfg_file", None)
    if not missing:
        return None
    group, _, option = str(missing).rpartition("/")
    known = list(getattr(error, "options", None) or [])
    if group == "hydra/launcher" and option in _EXTRAS:
        return f'hydra/launcher={option} is not installed: `pip install "rawflash[{_EXTRAS[option]}]"`'
    if not group:
        return f"there is no configuration file called {option!r}: leave --config-name away, or give --config-dir the folder that has it"
    return f"{group}={option} is unknown{_closest(option, known)}; the known ones are {', '.join(known) or 'none'}"


def _closest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def _ambiguous(error: BaseException) -> str | None:
    """a=1,2 without -m."""
    found = re.match(r"Ambiguous value for argument '(.*?)'\n", str(error))
    if found and found[1].startswith("experiment="):
        return f"several experiments are named as a list: 'experiment.names=[{found[1].partition('=')[2]}]'"
    return found and f"{found[1]} names several values: add -m to run each of them, or quote the value if it is one text"


def _grammar(error: BaseException) -> str | None:
    """An argument that is not of the form key=value."""
    override = getattr(error, "override", None)
    if override is None:
        return None
    if str(override) in _COMMANDS:
        return f"{override} is a program of its own: write it first, as in `rawflash {override}`, and without -m"
    if "=" not in str(override):
        close = _closest(str(override), _COMMANDS)
        return f"{override!r} is not an argument that rawflash knows{close}: write key=value, or see `rawflash --help`"
    return f"{override!r} cannot be read as key=value: quote brackets, commas and blanks, as in 'key=\"a, b\"'"


def _value(error: BaseException, unknown_key: Callable[[str], str]) -> str:
    """A key or a value that the schema refuses."""
    key = getattr(error, "full_key", None) or getattr(error, "key", None) or "?"
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if re.match(r"Key '.*' (is )?not in ", text):
        return unknown_key(str(key))
    wrong = re.match(r"Value '(.*)' of type '\w+' could not be converted to (\w+)", text, re.DOTALL)
    if wrong:
        return f"{key}={wrong[1]} is not {_KINDS.get(wrong[2], wrong[2])}"
    wrong = re.match(r"Value '(.*)' is not a valid bool", text, re.DOTALL)
    if wrong:
        return f"{key}={wrong[1]} is not true or false"
    wrong = re.match(r"Value '(.*)' of type '\w+' is incompatible with type hint 'Union\[(\w+), (\w+)\]'", text, re.DOTALL)
    if wrong:
        return f"{key}={wrong[1]} is neither {_TYPES.get(wrong[2], wrong[2])} nor {_TYPES.get(wrong[3], wrong[3])}"
    if "is not Optional" in text:
        return f"{key}=null is not allowed: give a value"
    if "Missing mandatory value" in text:
        return f"{key} has no value: give one as {key}=..."
    if "is not a ListConfig" in text:
        return f"{key} is a list: write {key}=[a,b]"
    return f"{key}: {text}"
