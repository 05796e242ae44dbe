"""Geometry problems with pictures: Geometry3K, GeoQA, and data of one's own.

`load_geometry(name_or_path, split)` opens and checks a data set; its `rows` are plain
`GeometryRow`s (problem, answer, pictures, choices) for evaluation, its `for_training()` is what
TRL's trainers take.
"""

from fastrl.geometry.datasets.lengths import prompt_counter
from fastrl.geometry.datasets.loading import (
    GeometryData,
    GeometryRows,
    RowProblem,
    load_geometry,
)
from fastrl.geometry.datasets.pictures import Picture, PictureError
from fastrl.geometry.datasets.rows import FORMAT_INSTRUCTION, Adapter, GeometryRow, RowError
from fastrl.geometry.datasets.sources import KNOWN_DATASETS, DatasetError

__all__ = [
    "FORMAT_INSTRUCTION",
    "KNOWN_DATASETS",
    "Adapter",
    "DatasetError",
    "GeometryData",
    "GeometryRow",
    "GeometryRows",
    "Picture",
    "PictureError",
    "RowError",
    "RowProblem",
    "load_geometry",
    "prompt_counter",
]
