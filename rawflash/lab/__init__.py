"""How experiments are written, run, kept and shown.

    experiment Experiment: what a module of rawflash.experiments holds
    cells      Row, Cell, Verdict, judge
    pictures   Chart, Bars, HeatMap: pictures as data
    workbench  Lab: what an experiment's function is handed (options, emulator, GPU, published numbers)
    memo       numbers that were computed before
    options    the entries of conf/experiment/<name>.yaml, and what can be given for one
    papers     experiments/published.yaml
    registry   which experiments there are
    render     rows to Markdown, CSV, JSON
    plots      pictures to PNG (the only door to matplotlib)
    crew       the cases of experiments, computed by several processes at once
    runner     `python -m rawflash.run experiment=NAME`

An experiment is a module of rawflash.experiments with a function that yields rows; experiments/README.md shows how to add one.
"""

from rawflash.lab.cells import Cell, Row, Verdict, checked, counted, judge, measured, modelled, published
from rawflash.lab.experiment import Experiment
from rawflash.lab.pictures import Axis, Bars, Chart, HeatMap, Picture, Series
from rawflash.lab.workbench import Lab

__all__ = [
    "Axis",
    "Bars",
    "Cell",
    "Chart",
    "Experiment",
    "HeatMap",
    "Lab",
    "Picture",
    "Row",
    "Series",
    "Verdict",
    "checked",
    "counted",
    "judge",
    "measured",
    "modelled",
    "published",
]
