"""How many jobs of a sweep run at once, with how many emulator threads each, so that no core has two masters.

    hydra/launcher=           jobs at once                                 threads of each job
    basic                     1                                            every core
    laptop (joblib)           n_jobs, -1: one per core                     cores / n_jobs
    slurm_here (submitit)     hydra.sweeper.max_batch_size, as n_jobs      cores / max_batch_size
    slurm (submitit)          SLURM decides                                cpus_per_task
    ray_here, ray_cluster     Ray decides                                  ray.remote.num_cpus, 1 when unset

Only attributes of the composed configuration are looked at, so that this module needs neither Hydra nor a launcher.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rawflash.errors import UsageError

__all__ = ["cores", "fit", "refuse_shared_gpu"]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name(hydra: Any) -> str:
    """Class name of the launcher: BasicLauncher, JoblibLauncher, LocalLauncher, SlurmLauncher, RayLauncher, ..."""
    return str(hydra.launcher.get("_target_", "")).rpartition(".")[2]


def fit(hydra: Any, points: int) -> int:
    """Fill in how many jobs run at once where that is left open; returns the emulator threads of each job, 0 for all cores."""
    name, launcher = _name(hydra), hydra.launcher
    if name == "JoblibLauncher":
        launcher.n_jobs = _jobs(launcher.get("n_jobs"), points)
        return max(1, cores() // launcher.n_jobs)
    if name == "LocalLauncher":  # starts a whole batch at once, however long it is
        hydra.sweeper.max_batch_size = _jobs(hydra.sweeper.get("max_batch_size"), points)
        return max(1, cores() // hydra.sweeper.max_batch_size)
    if name == "SlurmLauncher":
        return launcher.get("cpus_per_task") or 0
    if name == "RayLauncher":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        return max(1, int((launcher.ray.get("remote") or {}).get("num_cpus") or 1))
    return 0


def _jobs(asked: int | None, points: int) -> int:
    return asked if asked is not None and asked > 0 else max(1, min(cores(), points))


def refuse_shared_gpu(hydra: Any, backends: set[str], gpu_usable: Callable[[], bool]) -> None:
    """Raise UsageError when several jobs would run on one GPU at once: the times of all of them would be wrong.

    SLURM, and Ray when ray.remote.num_gpus is set, give each job a GPU of its own. `gpu_usable` is asked for backend=auto only.
    """
    name, launcher = _name(hydra), hydra.launcher
    jobs = 1
    if name == "JoblibLauncher":
        jobs = launcher.n_jobs
    elif name == "LocalLauncher":
        jobs = hydra.sweeper.max_batch_size
    elif name == "RayLauncher":
        jobs = 1 if (launcher.ray.get("remote") or {}).get("num_gpus") else 2
    if jobs > 1 and ("cupy" in backends or ("auto" in backends and gpu_usable())):
        raise UsageError(
            "this launcher would run several jobs on one GPU at once, and the times of all of them would be wrong: leave hydra/launcher= "
            "away, give each job a GPU of its own (hydra/launcher=slurm, or ray_cluster with hydra.launcher.ray.remote.num_gpus=1), "
            "or add backend=emu"
        )
