"""The report: one HTML page that needs nothing else, and the same tables as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import yaml

from fastrl.report.arms import Arm, by_arm
from fastrl.report.browser import Sample, sample_groups
from fastrl.report.cells import Table, markdown
from fastrl.report.figures import Figure, report_figures
from fastrl.report.run_folders import find_runs, noted_against
from fastrl.report.tables import report_tables
from fastrl.report.targets import accuracy_target
from fastrl.report.tiles import Tile, subtitle, summary_tiles

HIDDEN = ("token", "key", "secret", "password")  # settings with such names are not shown


@dataclass(frozen=True)
class Report:
    """A report, ready to be written.

    Attributes:
        html: the page.
        markdown: the tables, as Markdown.
        tables: the same, as cells.
        figures: the charts, each also a picture of its own.
    """

    html: str
    markdown: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]


def build_report(
    paths: Sequence[Path],
    num_groups: int = 200,
    title: str | None = None,
    target: float | None = None,
    against: str | None = None,
) -> Report:
    """The report of runs.

    Args:
        paths: run folders, or folders of run folders named `<arm>-seed<k>`.
        num_groups: groups in the rollout browser, at most.
        title: of the page; None makes one.
        target: held-out accuracy to reach, a share; None for plain's final one.
        against: the arm to compare the others with; None for the one that a comparison notes in
            its folder, else for plain.

    Raises:
        ValueError: no run, two runs of one arm and seed, a target without scores, no arm to compare
            with, or a file that cannot be read.
    """
    runs, notes = find_runs(paths)
    noted = noted_against(paths)
    if against is None and noted is not None and all(run.arm != noted for run in runs):
        # A comparison by parts (--only) may not have come to it yet.
        notes.append(f"{noted}, which the others are to be compared with, has no run yet.")
        noted = None
    arms = by_arm(runs, against or noted)
    if title is None:
        names = dict.fromkeys(str(run.config.get("recipe", "run")) for run in runs)
        title = ", ".join(names) + ": " + ", ".join(arm.name for arm in arms)
    goal = accuracy_target(arms, target)
    tables, figures = report_tables(arms, goal), report_figures(arms, goal)
    sample = sample_groups(arms, num_groups)
    text = [f"# {title}", "", *(f"- {note}" for note in notes)]
    text = [line.replace("<", "&lt;") for line in text]  # Markdown may hold HTML
    text += ["", *(markdown(table) for table in tables)]
    return Report(
        html=_page(title, summary_tiles(arms, goal), arms, tables, figures, sample, notes),
        markdown="\n".join(text).replace("\n\n\n", "\n\n"),
        tables=tuple(tables),
        figures=tuple(figures),
    )


def _page(
    title: str,
    tiles: Sequence[Tile],
    arms: Sequence[Arm],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    sample: Sample,
    notes: Sequence[str],
) -> str:
    assets = files("fastrl.report") / "assets"
    by_title = {table.title: table for table in tables}
    last = ("Settings", "Versions and machine")
    main = [table for table in tables if table.title not in last]
    # safe_substitute would pass a slip in the template over.
    return Template((assets / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(assets / "chart.css").read_text() + (assets / "page.css").read_text(),
        script=(assets / "browser.js").read_text(encoding="utf-8"),
        tiles="".join(
            f"<div class=tile><span>{escape(tile.name)}</span><b>{escape(tile.value)}</b>"
            f"<small>{escape(tile.detail)}</small></div>"
            for tile in tiles
        ),
        notes="".join(f"<p class=note>{escape(note)}</p>" for note in notes),
        subtitle=escape(subtitle(arms)),
        figures=_figures([figure for figure in figures if not figure.is_course]),
        training_figures=_figures([figure for figure in figures if figure.is_course]),
        training_hidden="" if any(figure.is_course for figure in figures) else "hidden",
        tables="".join(_table(table) for table in main),
        settings="".join(_table(by_title[name]) for name in last if name in by_title)
        + "".join(_config(arm) for arm in arms),
        sample=_sample_note(sample),
        data=_script_json(
            {
                "groups": sample.groups,
                "pictures": sample.pictures,
                "runs": sample.runs,
                "first": sample.first,
            }
        ),
        browser_hidden="" if sample.groups else "hidden",
    )


def _figures(figures: Sequence[Figure]) -> str:
    return "".join(
        f"<figure><figcaption>{escape(figure.title)}</figcaption>{figure.svg}"
        f"<p class=note>{escape(figure.note)}</p></figure>"
        for figure in figures
    )


def _table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{'' if i < table.num_text else ' class=num'}>{escape(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.rows)
    note = f"<p class=note>{escape(table.note)}</p>" if table.note else ""
    return (
        f"<section><h2>{escape(table.title)}</h2><div class=scroll tabindex=0><table><thead><tr>"
        f"{row(table.header, 'th')}</tr></thead><tbody>{body}</tbody></table></div>{note}</section>"
    )


def _config(arm: Arm) -> str:
    config = {
        name: value
        for name, value in arm.runs[0].config.items()
        if not any(part in name.lower().split("_") for part in HIDDEN)
    }
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    return (
        f"<details><summary>Every setting of {escape(arm.name)}</summary>"
        f"<pre>{escape(text)}</pre></details>"
    )


def _sample_note(sample: Sample) -> str:
    told = (
        f"{len(sample.groups):,} of {sample.total:,} groups, evenly over {', '.join(sample.runs)}."
    )
    return escape(" ".join([told, *sample.notes]))


def _script_json(content: object) -> str:
    """JSON that is safe inside <script>: nothing in it can end the element."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
