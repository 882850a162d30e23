"""rawflash: raw CUDA attention kernels that run on a GPU, or on any CPU by executing their PTX and counting every byte."""

__version__ = "0.1.0"
