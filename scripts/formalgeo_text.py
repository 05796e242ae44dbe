"""Make a data set for `fastrl train` of the geometry problems in words of FormalGeo7K.

    python scripts/formalgeo_text.py --problems formalgeo7k_v1/problems --out runs/formalgeo_text

Takes the short problems of GeoQA that ask for an angle: their text says everything that the diagram
shows. A fifth is held out as `test.jsonl`; problems that differ in the letters alone are never on
both sides.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

HELD_OUT = 5  # one in so many texts
LEAD = "As shown in the diagram, "  # there is no diagram


def published(path: Path) -> Iterator[dict[str, Any]]:
    """Every problem: of a folder with a JSON file each, or of one JSONL file (perhaps .gz)."""
    if path.is_dir():
        for file in sorted(path.glob("*.json"), key=lambda file: (len(file.stem), file.stem)):
            yield json.loads(file.read_text(encoding="utf-8"))
        return
    content = path.read_bytes()
    for line in (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines():
        yield json.loads(line)


def chosen(problem: dict[str, Any], level: int, longest: int) -> dict[str, str] | None:
    """A problem as a row, or None where it is of another kind, too hard or too long."""
    text = str(problem.get("problem_text_en") or problem.get("text") or "").strip()
    answer = str(problem.get("problem_answer") or problem.get("answer") or "").strip()
    how_hard = int(problem.get("problem_level") or problem.get("level") or 0)
    if not str(problem.get("source")).startswith("GeoQA") or "measure of" not in text:
        return None
    # Angles in whole degrees: what else the set has are expressions and lengths.
    if how_hard > level or len(text) > longest or not answer.isdigit():
        return None
    return {"problem": text.removeprefix(LEAD), "answer": answer}


def is_held_out(text: str) -> bool:
    letters_apart = re.sub(r"\b[A-Z]+\b", "X", text)
    return zlib.crc32(letters_apart.encode()) % HELD_OUT == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=Path, required=True, help="published folder, or JSONL")
    parser.add_argument("--out", type=Path, default=Path("runs/formalgeo_text"))
    parser.add_argument("--level", type=int, default=4, help="the hardest, as FormalGeo counts")
    parser.add_argument("--longest", type=int, default=110, help="characters of a problem")
    options = parser.parse_args()
    rows: dict[str, dict[str, str]] = {}
    for problem in published(options.problems):
        row = chosen(problem, options.level, options.longest)
        if row is not None:
            rows.setdefault(row["problem"], row)
    if not rows:
        raise SystemExit(f"{options.problems}: no problem of this kind in it.")
    options.out.mkdir(parents=True, exist_ok=True)
    for split, wanted in (("train", False), ("test", True)):
        found = [row for text, row in rows.items() if is_held_out(text) == wanted]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in found]
        (options.out / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
        Console().print(f"{options.out / split}.jsonl: {len(found)} problems", soft_wrap=True)


if __name__ == "__main__":
    main()
