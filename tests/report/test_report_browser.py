"""The page in headless Chromium: it opens, filters, sorts, and reports no error."""

import base64
import html
import shutil
import subprocess
from pathlib import Path

import pytest
from report_runs import rollout, write_rollouts, write_run

from fastrl.report.page import build_report

pytest.importorskip("pyarrow")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

# Runs after the page's own script; what it finds goes into the title for --dump-dom.
PROBE = """
<script>
const set = (id, value) => {
  const control = document.getElementById(id);
  control.value = value;
  control.dispatchEvent(new Event("input"));
};
const seen = () => [...document.querySelectorAll(".group")].map((group) =>
  group.querySelector(".question").textContent + ":" +
  [...group.querySelectorAll(".number")].map((n) => n.textContent).join("")).join(" ");
const told = [];
const look = (name, change) => { change(); told.push(name + "=" + seen()); };
look("all", () => {});
look("dropped", () => set("state", "dropped"));
look("duplicate", () => set("state", "dropped:duplicate"));
document.querySelector(".told .ref").click();
look("whole", () => {});
told.push("pointed=" + document.querySelector(".pointed .number").textContent);
look("kept", () => set("state", "kept"));
document.querySelector(".whole").click();
look("more", () => {});
set("state", "");
look("generated", () => set("order", "number"));
told.push("states=" + [...document.getElementById("state").options].map((o) => o.text).join());
told.push("why=" + [...document.querySelectorAll(".told")].map((n) => n.textContent).join());
look("step", () => set("step-from", "4"));
set("step-from", "");
look("reward", () => set("reward-to", "0.5"));
set("reward-to", "");
look("text", () => set("text", "ANSWER 2"));
set("text", "");
look("sort", () => set("sort", "reward"));
look("least", () => set("sort", "dropped"));
look("similar", () => set("sort", "similarity-desc"));
document.getElementById("theme").click();
told.push("theme=" + document.documentElement.dataset.theme);
told.push("count=" + document.getElementById("count").textContent);
const image = document.images[0];
told.push("images=" + document.images.length + " " + image.naturalWidth);
told.push("asked=" + image.closest(".group").querySelector(".question").textContent);
document.title = told.join(";");
</script>
"""
CATCH = "<script>window.onerror = (message) => { document.body.dataset.error = message; };</script>"
# One black pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
HOSTILE = "</script><script>document.body.dataset.owned = 1</script><img src=x onerror=alert(1)>"


@pytest.fixture
def page(tmp_path: Path) -> str:
    run = write_run(tmp_path / "a", rule="differential")
    first = [
        rollout(0, completion="answer 0 " + HOSTILE, advantage=-0.5),
        rollout(1, reward=0.0, kept=False, reason="duplicate", duplicate_of=2, similarity=0.5),
        rollout(2),
    ]
    first = [{**row, "prompt": "<image>question 0", "picture": None} for row in first]
    first[0]["picture"] = PNG
    second = [rollout(0, prompt="later", reward=0.0), rollout(1, prompt="later", reward=0.25)]
    write_rollouts(run, 0, first)
    write_rollouts(run, 1, second)
    return build_report([run]).html


def run_chromium(folder: Path, html_text: str) -> subprocess.CompletedProcess[str]:
    path = folder / "page.html"
    path.write_text(html_text, encoding="utf-8")
    words = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=2000",
        "--dump-dom",
        path.as_uri(),
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)


def test_the_browser_filters_and_sorts(page: str, tmp_path: Path) -> None:
    probed = page.replace("<main>", CATCH + "<main>").replace("</body>", PROBE + "</body>")
    done = run_chromium(tmp_path, probed)
    title = html.unescape(done.stdout.partition("<title>")[2].partition("</title>")[0])
    told = dict(part.split("=", 1) for part in title.split(";"))
    assert told == {
        # The highest advantage first, below it what repeats it.
        "all": "question 0:#3#2#1 later:#1#2",
        "dropped": "question 0:#2",
        "duplicate": "question 0:#2",
        "whole": "question 0:#3#2#1",
        "pointed": "#3",
        "kept": "question 0:#3#1 later:#1#2",
        "more": "question 0:#3#2#1 later:#1#2",
        "generated": "question 0:#1#2#3 later:#1#2",
        "states": "all,kept,dropped,kept: stands for its advantage,dropped: repeats another",
        "why": ",".join(
            [
                "kept stands for its advantage value",
                "dropped repeats #3, similarity 0.50",
                *["kept stands for its advantage value"] * 3,
            ]
        ),
        "step": "later:#1#2",
        "reward": "question 0:#2 later:#1#2",
        "text": "question 0:#3",
        "sort": "later:#1#2 question 0:#1#2#3",
        "least": "later:#1#2 question 0:#1#2#3",
        "similar": "question 0:#1#2#3 later:#1#2",
        "theme": "dark",
        "count": "5 rollouts in 2 groups match.",
        "images": "1 1",
        "asked": "question 0",
    }
    assert "data-error" not in done.stdout
    assert "data-owned" not in done.stdout.partition("<script")[0]
    assert "CONSOLE" not in done.stderr


def test_the_page_opens_without_a_console_message(page: str, tmp_path: Path) -> None:
    done = run_chromium(tmp_path, page)
    assert "CONSOLE" not in done.stderr
    assert 'class="group"' in done.stdout
