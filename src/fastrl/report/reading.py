"""Files and folders of logged rollouts, read in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fastrl.report.formats import READERS, ReadOptions, detect
from fastrl.report.logged import LoggedRollouts, Rollout, assemble
from fastrl.report.rows import JSON_LINES, PARQUET, read_rows


def read_logs(paths: Sequence[Path], options: ReadOptions | None = None) -> LoggedRollouts:
    """Read logged rollouts of any known format.

    Args:
        paths: files, or folders: a run folder (of `fastrl train`, or a TRL `output_dir` with
            `completions/`), or one that holds log files.
        options: how to read them.

    Returns:
        All rollouts with groups and advantages.

    Raises:
        ValueError: names file, line, field and remedy.
    """
    options = options or ReadOptions()
    rollouts: list[Rollout] = []
    formats: dict[str, None] = {}
    notes: dict[str, None] = {}
    repeated, previous = 0, None
    for path in [file for given in paths for file in log_files(given)]:
        rows, told = read_rows(path)
        name = detect(rows[0], options)
        title, read = READERS[name]
        read_rollouts, more = read(rows, replace(options, is_cut=bool(told)))
        formats[title] = None
        notes.update(dict.fromkeys([*told, *more]))
        # TRL writes its latest generation batch at every logging step, new or not.
        content = [(r.prompt, r.completion, r.reward, r.advantage) for r in read_rollouts]
        if name == "trl" and content == previous:
            repeated += 1
            continue
        previous = content
        rollouts += read_rollouts
    if repeated:
        notes[f"{repeated} file(s) repeat the generation batch of the one before: left out."] = None
    return assemble(list(formats), rollouts, list(notes), options.num_generations, options.drop_nan)


def log_files(path: Path) -> list[Path]:
    """The log files that a path stands for, in order.

    Raises:
        ValueError: a folder without any.
    """
    if not path.is_dir():
        return [path]
    for folder in (path / "rollouts", path / "completions", path):
        files = [
            file
            for pattern in ("generation_*.parquet", "completions_*.parquet", "*")
            for file in sorted(folder.glob(pattern), key=_order)
            if file.name.endswith((*PARQUET, *JSON_LINES)) and file.name != "metrics.jsonl"
        ]
        if files:
            return list(dict.fromkeys(files))
    raise ValueError(
        f"{path}: a folder without rollout logs; expected rollouts/generation_*.parquet, "
        "completions/completions_*.parquet, or .jsonl or .parquet files in it. (fastrl train "
        "writes them with --log_rollouts true, TRL with log_completions=True, verl with "
        "trainer.rollout_data_dir.)"
    )


def _order(path: Path) -> tuple[int, str]:
    stem = path.name.split(".")[0]
    return (int(stem), "") if stem.isdigit() else (0, path.name)
