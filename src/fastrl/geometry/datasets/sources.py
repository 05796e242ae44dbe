"""Where rows come from: the hub, local files, a saved data set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, Image, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError
from pyarrow.dataset import ParquetFragmentScanOptions

# The published runs' data, by short names; `fastrl evaluate` knows them, too.
KNOWN_DATASETS = {
    "geometry3k": "hiyouga/geometry3k",
    "geoqa": "leonardPKU/GEOQA_8K_R1V",
    "geoqa8k": "leonardPKU/GEOQA_8K_R1V",
    "geoqa8k_solutions": "leonardPKU/GEOQA_R1V_Train_8K",
}
DEFAULT_SPLIT = "train"
_LOADERS = {"parquet": "parquet", "jsonl": "json", "json": "json"}
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class DatasetError(ValueError):
    """A data set cannot be used; the message names it, what is wrong, and the remedy."""


class RawRows:
    """Rows as a data set has them, read when asked for; pictures stay encoded.

    Args:
        dataset: any map-style Hugging Face data set.
        name: how errors call it.
        folder: what relative paths of pictures are relative to.
    """

    def __init__(self, dataset: Dataset, name: str, folder: Path | None = None) -> None:
        self.name = name
        self.folder = folder
        encoded = [column for column, kind in dataset.features.items() if _holds_images(kind)]
        plain = [column for column in dataset.column_names if column not in encoded]
        # The arrow format hands pictures over as they are stored, the usual one decodes them.
        self._encoded = dataset.select_columns(encoded).with_format("arrow") if encoded else None
        self._plain = dataset.select_columns(plain).with_format(None) if plain else None
        self._length = len(dataset)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        row: dict[str, Any] = {}
        if self._plain is not None:
            row.update(self._plain[index])
        if self._encoded is not None:
            row.update(self._encoded[index].to_pylist()[0])
        return row


def open_source(name_or_path: str, split: str | None = None) -> RawRows:
    """Open a data set without reading its pictures.

    Args:
        name_or_path: a name in `KNOWN_DATASETS`, a hub name, a .parquet or .jsonl file, a folder
            of such files named after their split (`train.jsonl`, `data/train-00000.parquet`), or
            a folder that `save_to_disk` wrote.
        split: of the data set, "train" by default; a single file has none.

    Raises:
        DatasetError: there is no such data set or split, or it cannot be read.
    """
    path = Path(name_or_path)
    if path.exists():
        return _local(path, split)
    name = KNOWN_DATASETS.get(name_or_path, name_or_path)
    if not _HUB_NAME.fullmatch(name) or name.startswith(".") or _suffix(path) in _LOADERS:
        raise DatasetError(
            f"{name_or_path!r}: no such file or folder, no known name "
            f"({', '.join(KNOWN_DATASETS)}), and no hub name (owner/name)."
        )
    split = split or DEFAULT_SPLIT
    try:
        dataset = load_dataset(name, split=split)
    except (DatasetsError, OSError, ValueError) as error:
        raise DatasetError(
            f"{name}, split {split!r}: cannot be had from the hub ({error}). Check the name, the "
            "split and the connection, or give a local path."
        ) from error
    return RawRows(dataset, f"{name}[{split}]")


def _local(path: Path, split: str | None) -> RawRows:
    if path.is_file():
        return RawRows(_read_files([path]), path.name, path.parent)
    if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
        saved = load_from_disk(str(path))
        if isinstance(saved, DatasetDict):
            split = split or DEFAULT_SPLIT
            if split not in saved:
                raise DatasetError(
                    f"{path}: no split {split!r}; it has {', '.join(sorted(saved))}."
                )
            saved = saved[split]
        elif split is not None and saved.split is not None and split != str(saved.split):
            raise DatasetError(f"{path}: no split {split!r}; it holds {str(saved.split)!r} alone.")
        return RawRows(saved, path.name, path)
    split = split or DEFAULT_SPLIT
    found = [
        file
        for folder in (path, path / "data")
        for file in sorted(folder.glob("*"))
        if file.is_file() and _suffix(file) in _LOADERS
    ]
    files = [file for file in found if re.match(rf"{re.escape(split)}(?![A-Za-z0-9])", file.name)]
    if not files or len({_suffix(file) for file in files}) > 1:
        what = "files of several kinds" if files else "no .parquet or .jsonl file"
        listed = ", ".join(str(file.relative_to(path)) for file in files or found) or "none"
        raise DatasetError(
            f"{path}: {what} for the split {split!r} (by the start of their names); "
            f"found: {listed}."
        )
    return RawRows(_read_files(files), f"{path.name}[{split}]", files[0].parent)


def _read_files(files: list[Path]) -> Dataset:
    kind = _LOADERS.get(_suffix(files[0]))
    if kind is None:
        raise DatasetError(f"{files[0]}: expected a .parquet or .jsonl file, or a folder.")
    names = [str(file) for file in files]
    options: dict[str, Any] = {}
    if kind == "parquet":
        # Read ahead, pyarrow holds all of a file that it has read; a file may be gigabytes.
        options["fragment_scan_options"] = ParquetFragmentScanOptions(pre_buffer=False)
    try:
        return load_dataset(kind, data_files=names, split="train", **options)
    except (DatasetsError, OSError, ValueError) as error:
        reason = error.__cause__ or error
        raise DatasetError(f"{', '.join(names)}: cannot be read ({reason}).") from error


def _suffix(file: Path) -> str:
    """The kind of a file by its name, whether or not it is compressed."""
    suffixes = [suffix.lstrip(".").lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in ("gz", "zst", "xz", "bz2"):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _holds_images(kind: Any) -> bool:
    """Whether a feature is an image, or a list or mapping that holds one."""
    if isinstance(kind, Image):
        return True
    if isinstance(kind, Mapping):
        return any(_holds_images(part) for part in kind.values())
    inner = kind[0] if isinstance(kind, list | tuple) and kind else getattr(kind, "feature", None)
    return inner is not None and _holds_images(inner)
