"""The configuration: its schema (names and types of every key), and the plain objects that the rest of rawflash takes.

Hydra composes conf/*.yaml and the command line into a DictConfig of the shape of `Conf`; `settings_from` checks it and turns
it into a `Settings`. Nothing below this module sees a DictConfig.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from omegaconf import MISSING, DictConfig, OmegaConf

from rawflash.errors import UsageError
from rawflash.paths import conf_dir
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.store import TrackingConf
from rawflash.tiling import Tiling

if TYPE_CHECKING:
    from rawflash.bench import TimingConfig

__all__ = [
    "Conf",
    "Settings",
    "as_text",
    "composed",
    "gpu_values",
    "key_of",
    "known_keys",
    "read_yaml",
    "register_schema",
    "settings_from",
    "tracking_from",
    "unknown_key",
]

BACKENDS = ("auto", "cupy", "emu")
# A CTA has at most 1024 threads and 227 KiB of shared memory: no tile with more rows than this fits on any GPU.
MAX_BLOCK = 1024
EMULATED_GPU = "a100_80gb"
# What a run is about, as opposed to where its results go: only these become parameters.
_INPUTS = ("block_size", "seed", "kernel", "problem", "backend", "gpu", "timing")
_NOT_INPUTS = ("kernel.variants", "backend.threads", "gpu.source", "gpu.confidence", "gpu.note")


@dataclass
class KernelConf:
    """Group kernel: the variants to run, tile sides that differ from block_size, and knobs that only some variants have (Tiling)."""

    variants: list[str] = field(default_factory=list)
    Br: Optional[int] = None  # noqa: UP045 - OmegaConf reads typing.Optional
    Bc: Optional[int] = None  # noqa: UP045
    scale_pass: bool = False
    lazy_threshold: Optional[float] = 8.0  # noqa: UP045
    poly_fraction: float = 0.25
    poly_degree: int = 4
    num_splits: Union[int, str] = "auto"  # noqa: UP007
    warps: Union[int, str] = "auto"  # noqa: UP007


@dataclass
class ProblemConf:
    """Group problem; meanings in rawflash.problem.Problem."""

    B: int = MISSING
    H: int = MISSING
    Hkv: Optional[int] = None  # noqa: UP045
    N: int = MISSING
    Nkv: Optional[int] = None  # noqa: UP045
    d: int = MISSING
    dv: Optional[int] = None  # noqa: UP045
    layout: str = "bhnd"
    dtype: str = MISSING
    causal: Union[bool, str] = MISSING  # noqa: UP007
    softmax_scale: Optional[float] = None  # noqa: UP045
    window_left: Optional[int] = None  # noqa: UP045
    window_right: Optional[int] = None  # noqa: UP045
    softcap: Optional[float] = None  # noqa: UP045
    distribution: str = "randn"
    dropout_p: float = 0.0


@dataclass
class BackendConf:
    """Group backend: auto, cupy or emu; the emulator's threads (None: chosen), and whether it looks for races."""

    name: str = MISSING
    threads: Optional[int] = None  # noqa: UP045
    racecheck: bool = False


@dataclass
class TimingConf:
    """How a GPU is timed; meanings in rawflash.bench.TimingConfig."""

    warmup: int = 10
    repeats: int = 50


@dataclass
class ExperimentConf:
    """Group experiment: which ones run instead of a job (none), their options, a folder that gets a copy of the results.

    `fresh`: compute everything again, also what an earlier run has computed from the same sources. `jobs`: processes at once, null for
    one per core.
    """

    names: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    publish: Optional[str] = None  # noqa: UP045
    fresh: bool = False
    jobs: Optional[int] = None  # noqa: UP045


@dataclass
class Conf:
    """The whole configuration. The names in `gpu` are checked by rawflash.roofline.Gpu."""

    block_size: int = 64
    seed: int = 0
    debug: bool = False
    resume: bool = False
    kernel: KernelConf = field(default_factory=KernelConf)
    problem: ProblemConf = field(default_factory=ProblemConf)
    backend: BackendConf = field(default_factory=BackendConf)
    gpu: dict[str, Any] = field(default_factory=dict)
    timing: TimingConf = field(default_factory=TimingConf)
    tracking: TrackingConf = field(default_factory=TrackingConf)
    experiment: ExperimentConf = field(default_factory=ExperimentConf)


@dataclass(frozen=True)
class Settings:
    """What one job is asked to do, in plain objects.

    `params` is the part of the configuration that describes the run, as flat dotted names and text values; `yaml` is the whole
    resolved configuration; `gpu` is None for the GPU that is found; `threads` of the emulator, 0 when they are not chosen here.
    """

    variants: tuple[str, ...]
    problem: Problem
    tiling: Tiling
    backend: str
    threads: int
    racecheck: bool
    gpu: Mapping[str, Any] | None
    timing: TimingConfig
    tracking: TrackingConf
    debug: bool
    resume: bool
    params: dict[str, str]
    yaml: str
    experiments: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    publish: str | None = None
    fresh: bool = False
    jobs: int | None = None

    @property
    def sheet(self) -> Gpu:
        """The description of the GPU that is asked for, else of the one whose limits hold where none is found."""
        return Gpu.from_dict(gpu_values() if self.gpu is None else self.gpu)


def register_schema() -> None:
    """Make the schema known to Hydra as `schema`, which conf/config.yaml lists first."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="schema", node=Conf)


def key_of(override: str) -> str:
    """The key of a command-line argument: problem.N of ++problem.N=64 and of ~problem.N."""
    return override.lstrip("+~").partition("=")[0]


def known_keys(schema: type = Conf, prefix: str = "") -> Iterator[str]:
    """Every key of the schema, dotted, groups included: block_size, kernel, kernel.Br, ..."""
    for entry in fields(schema):
        yield prefix + entry.name
        nested = entry.default_factory
        if isinstance(nested, type) and is_dataclass(nested):
            yield from known_keys(nested, f"{prefix}{entry.name}.")
        elif entry.name == "gpu":
            yield from (f"gpu.{figure.name}" for figure in fields(Gpu))


def composed(overrides: Sequence[str]) -> Settings:
    """The settings that a command line with `overrides` asks for, where no job is run. Raises Hydra's own errors, and UsageError."""
    from hydra import compose, initialize_config_dir

    register_schema()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return settings_from(compose("config", list(overrides)))


def settings_from(cfg: DictConfig) -> Settings:
    """Check a composed configuration. Raises UsageError with one sentence for a key or a value that cannot be meant."""
    from rawflash.bench import TimingConfig

    values: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    _refuse_unknown(values)
    backend = values["backend"]["name"]
    if backend not in BACKENDS:
        raise UsageError(f"backend.name={backend!r} is unknown: choose one of {', '.join(BACKENDS)}")
    threads = values["backend"]["threads"]
    if threads is not None and threads < 1:
        raise UsageError(f"backend.threads={threads} is not a number of threads: give a whole number of at least 1, or null")
    jobs = values["experiment"]["jobs"]
    if jobs is not None and jobs < 1:
        raise UsageError(f"experiment.jobs={jobs} is not a number of processes: give a whole number of at least 1, or null")
    gpu = values["gpu"]
    return Settings(
        variants=_variants(values["kernel"]["variants"]),
        problem=_problem(values),
        tiling=_tiling(values),
        backend=backend,
        threads=threads or 0,
        racecheck=values["backend"]["racecheck"],
        gpu=None if gpu.get("name") == "auto" else gpu,
        timing=TimingConfig(**values["timing"]),
        tracking=tracking_from(cfg),
        debug=values["debug"],
        resume=values["resume"],
        params=_params(values),
        yaml=OmegaConf.to_yaml(OmegaConf.create(values)),
        experiments=tuple(values["experiment"]["names"]),
        **{name: values["experiment"][name] for name in ("options", "publish", "fresh", "jobs")},
    )


def tracking_from(cfg: DictConfig) -> TrackingConf:
    """The group tracking alone, checked. Raises UsageError for a time limit that is none."""
    conf = TrackingConf(**OmegaConf.to_container(cfg.tracking, resolve=True))  # type: ignore[arg-type]
    if not conf.timeout_s > 0:
        raise UsageError(f"tracking.timeout_s={conf.timeout_s} is not a time limit: give a number of seconds above 0")
    return conf


def gpu_values(name: str = EMULATED_GPU) -> dict[str, Any]:
    """The entries of conf/gpu/<name>.yaml. Raises UsageError for a name that has no file."""
    path = conf_dir() / "gpu" / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise UsageError(f"gpu={name} is unknown: choose one of {known}")
    return read_yaml(path)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file whose top is a mapping, as plain objects."""
    return OmegaConf.to_container(OmegaConf.load(path))  # type: ignore[return-value]


def _refuse_unknown(values: Mapping[str, Any]) -> None:
    """`+key=value` slips past Hydra's own check of names."""
    known = set(known_keys())
    for key, value in values.items():
        inside = [f"{key}.{name}" for name in value] if isinstance(value, dict) and key != "gpu" else []
        for name in [key, *inside]:
            if name not in known:
                raise UsageError(unknown_key(name))


def unknown_key(name: str) -> str:
    """The sentence for a key that does not exist, with the closest one that does."""
    import difflib

    known = list(known_keys())
    last = name.rpartition(".")[2]
    close = (
        [key for key in known if key.lower() == name.lower()]
        or [key for key in known if key.rpartition(".")[2] == last]
        or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    )
    hint = f"did you mean {close[0]}?" if close else "`rawflash --help` lists every key"
    return f"there is no key {name}: {hint}"


def _variants(names: list[str]) -> tuple[str, ...]:
    from rawflash.variants import LADDER

    if not names:
        raise UsageError(f"kernel.variants is empty: name at least one of {', '.join(LADDER)}")
    for name in names:
        if name not in LADDER:
            raise UsageError(f"kernel.variants names {name!r}, which is no kernel: the known ones are {', '.join(LADDER)}")
    return tuple(dict.fromkeys(names))


def _problem(values: Mapping[str, Any]) -> Problem:
    """The library accepts empty problems; a command line that asks for one is a slip."""
    for name in ("B", "H", "Hkv", "N", "Nkv", "d", "dv"):
        size = values["problem"][name]
        if size is not None and size <= 0:
            raise UsageError(f"problem.{name}={size} is not a size: give a whole number of at least 1")
    if not 0 <= values["seed"] < 2**64:
        raise UsageError(f"seed={values['seed']} is not a seed: give a whole number from 0 to 2^64-1")
    return Problem(**values["problem"], seed=values["seed"])


def _tiling(values: Mapping[str, Any]) -> Tiling:
    side = values["block_size"]
    Br, Bc = (side if values["kernel"][name] is None else values["kernel"][name] for name in ("Br", "Bc"))
    for name, size in (("block_size", side), ("kernel.Br", Br), ("kernel.Bc", Bc)):
        if not 1 <= size <= MAX_BLOCK:
            raise UsageError(f"{name}={size} is not the side of a tile: give a whole number from 1 to {MAX_BLOCK}, such as 64")
    kernel = values["kernel"]
    options: dict[str, Any] = {name: kernel[name] for name in ("scale_pass", "lazy_threshold", "poly_fraction", "poly_degree")}
    for name, what in (("num_splits", "splits"), ("warps", "warps")):
        number = kernel[name]
        if number != "auto" and not (isinstance(number, int) and not isinstance(number, bool) and number >= 1):
            raise UsageError(f"kernel.{name}={number} is not a number of {what}: give a whole number of at least 1, or auto")
        options[name] = None if number == "auto" else number
    return Tiling(Br=Br, Bc=Bc, **options)


def _params(values: Mapping[str, Any]) -> dict[str, str]:
    flat = _flatten({key: values[key] for key in _INPUTS})
    return {key: value for key, value in flat.items() if not any(key == out or key.startswith(f"{out}.") for out in _NOT_INPUTS)}


def _flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Dotted names and one text form for every kind of value: null, true, false, numbers by repr, lists as [a, b]."""
    if isinstance(value, dict) and value:
        return {k: v for name, inner in value.items() for k, v in _flatten(inner, f"{prefix}.{name}" if prefix else str(name)).items()}
    return {prefix: as_text(value)}


def as_text(value: Any) -> str:
    """A value as it is written on the command line: null, true, [a, b], {k: v}."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(as_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {as_text(inner)}' for key, inner in value.items())}}}"
    return str(value)
