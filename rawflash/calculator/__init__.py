"""The calculator: what attention of any shape costs on any GPU, all modelled.

formulas        the figures, in Python
formulas.js     the same figures, for the page; a test compares the two
page            one self-contained HTML page from page.html, page.css, page.js, formulas.js and conf/gpu
command         `rawflash calculator [key=value ...] [page=FILE]`
"""

from rawflash.calculator.formulas import FIGURES, Figure, calculate, memory_bytes, score_bytes

__all__ = ["FIGURES", "Figure", "calculate", "memory_bytes", "score_bytes"]
