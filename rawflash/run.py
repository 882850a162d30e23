"""The program: `python -m rawflash.run [key=value ...]`, the same as the console script `rawflash`.

    main    catches every error: one sentence on stderr, an exit code, no traceback unless asked for
    _task   what Hydra calls, once per invocation or once per point of a sweep, in whatever process a launcher gives it

Exit codes: 0 right; 1 a variant failed or results could not be filed; 2 the request cannot be meant or met; 128 + n signal n.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawflash.errors import RawflashError, UsageError
from rawflash.session import Abort, Session
from rawflash.signals import Stopped, caught

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rawflash.config import Settings
    from rawflash.job import Invocation

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's); returns the exit code."""
    arguments = _flags_first(list(sys.argv[1:] if argv is None else argv))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if arguments[:1] == ["doctor"]:
        from rawflash.doctor import main as doctor

        return doctor(arguments[1:])
    if arguments[:1] == ["speed"]:
        from rawflash.speed import main as speed

        return speed(arguments[1:])
    if arguments[:1] == ["compare"]:
        from rawflash.compare import main as compare

        return compare(arguments[1:])
    if arguments == ["--version"]:
        from rawflash import __version__

        print(f"rawflash {__version__}")
        return 0
    Session.arguments, Session.code, Session.error, Session.sweep = tuple(arguments), 0, None, None
    Session.debug = os.environ.get("HYDRA_FULL_ERROR", "") not in ("", "0") or "debug=true" in arguments
    try:
        with caught():
            if arguments[:1] == ["sync"]:
                from rawflash.sync import sync

                return sync(arguments[1:])
            if arguments[:1] == ["calculator"]:
                from rawflash.calculator.command import main as calculator

                return calculator(arguments[1:])
            return _run(arguments)
    except Stopped as stop:
        kept = f"what was finished is in {stop.kept}" if stop.kept else "nothing was finished"
        print(f"rawflash: {stop}; {kept}, runs that were open are marked KILLED", file=sys.stderr)
        return stop.exit_code
    except Exception as error:
        return _tell(error)


def _flags_first(arguments: list[str]) -> list[str]:
    """-m may stand anywhere; Hydra's parser takes it only before or after all key=value."""
    flags = [argument for argument in arguments if argument in ("-m", "--multirun")]
    return [*flags[:1], *(argument for argument in arguments if argument not in flags)]


def _refuse_lists(arguments: Sequence[str]) -> None:
    """Hydra would merge the files of kernel=[naive,fa2]: it looks like several kernels, and would run the last one alone."""
    for key, _, value in (argument.partition("=") for argument in arguments):
        if key in ("kernel", "experiment") and "[" in value:
            names = value.strip("[]").replace(" ", "")
            told = f"kernel.variants=[{names}]" if key == "kernel" else f"experiment.names=[{names}]"
            raise UsageError(f"{key}={value} merges files, and the last one wins: to run each of them write '{told}'")


def _run(arguments: list[str]) -> int:
    """Hand over to Hydra, then close what is left to close."""
    _refuse_lists(arguments)
    try:
        with contextlib.suppress(Abort), _command_line(arguments):
            _hydra()()
        if Session.error is not None:
            raise Session.error
        if Session.sweep is not None:
            from rawflash.sweep import finish_sweep

            return finish_sweep(Session.sweep)
        return Session.code
    except BaseException as error:
        if Session.sweep is not None:
            error = _of_launcher(error)
            Session.sweep.abandon("FAILED" if isinstance(error, Exception) else "KILLED", str(error))
            if isinstance(error, Stopped):
                error.kept = Session.sweep.kept
        raise error


def _of_launcher(error: BaseException) -> BaseException:
    """An error that neither a point nor the request raised comes from the launcher: no SLURM here, no Ray, a killed worker."""
    from rawflash.config import unknown_key
    from rawflash.explain import explain

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Stopped):  # which a launcher written in C++ wraps
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        return cause
    if isinstance(error, RawflashError) or not isinstance(error, Exception) or explain(error, unknown_key):
        return error
    chosen = next((a.partition("=")[2] for a in reversed(Session.arguments) if a.startswith("hydra/launcher=")), "basic")
    told = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
    kept = Session.sweep is not None and Session.sweep.kept
    way = "; what was finished is kept, and the same command with resume=true goes on from there" if kept else ""
    new = RawflashError(f"hydra/launcher={chosen} could not run the jobs to their end: {told} ({type(error).__name__}){way}")
    new.__cause__ = error
    return new


@contextlib.contextmanager
def _command_line(arguments: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and prints errors itself unless HYDRA_FULL_ERROR says that it may raise them."""
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["rawflash", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full


def _hydra() -> Any:
    import hydra

    from rawflash.config import register_schema
    from rawflash.multirun import check_each_value_once
    from rawflash.paths import conf_dir

    register_schema()
    check_each_value_once()
    return hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(_task)


def _task(cfg: DictConfig) -> None:
    """One invocation, or one point of a sweep. Errors of an invocation go to the session, those of a point into its row."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from rawflash.config import settings_from

    hydra = HydraConfig.get()
    overrides = tuple(hydra.overrides.task)
    cwd = Path(hydra.runtime.cwd)
    if hydra.mode == RunMode.MULTIRUN:
        from rawflash.sweep import run_point

        run_point(lambda: settings_from(cfg), overrides, Path(hydra.runtime.output_dir), Path(hydra.sweep.dir), cwd)
        return
    try:
        from rawflash.job import Invocation

        launcher = hydra.runtime.choices.get("hydra/launcher", "basic")
        if launcher != "basic":
            raise UsageError(f"hydra/launcher={launcher} shares out the points of a sweep, and this is none: add -m, or leave it away")
        settings = settings_from(cfg)
        folder = None if hydra.run.dir == "." else Path(hydra.runtime.output_dir)
        Session.code = _job(settings)(settings, Invocation(Session.arguments, overrides, cwd), folder)
    except Exception as error:
        Session.error = error


def _job(settings: Settings) -> Callable[[Settings, Invocation, Path | None], int]:
    """What does the work: the experiments that are named, else the chosen kernels."""
    if settings.experiments:
        from rawflash.lab.runner import run_experiments

        return run_experiments
    from rawflash.job import single

    return single


def _tell(error: Exception) -> int:
    """Print what went wrong in one sentence; with debug=true or HYDRA_FULL_ERROR=1 the traceback first."""
    from rawflash.config import unknown_key
    from rawflash.explain import explain, internal_error

    if Session.debug:
        traceback.print_exception(error)
    sentence = explain(error, unknown_key)
    if sentence is not None:
        error = UsageError(sentence)
    if isinstance(error, RawflashError):
        print(f"rawflash: {error}", file=sys.stderr)
        return error.exit_code
    print(f"rawflash: {internal_error(error)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    # Under `-m` this file is a second module, __main__; the one that other processes of a sweep import must do the work.
    from rawflash.run import main as program

    sys.exit(program())
