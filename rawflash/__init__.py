"""rawflash: raw CUDA attention kernels that run on a GPU, or on any CPU by executing their PTX and counting every byte.

merge_partials    attention over disjoint sets of keys -> over all of them (NumPy)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawflash.merge import merge_partials

__all__ = ["__version__", "merge_partials"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """NumPy is imported when something needs it."""
    if name == "merge_partials":
        from rawflash.merge import merge_partials

        return merge_partials
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
