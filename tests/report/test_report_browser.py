"""The page in headless Chromium: it opens, filters, sorts, and reports no error."""

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
look("duplicate", () => set("state", "duplicate"));
look("kept", () => set("state", "kept"));
set("state", "");
look("step", () => set("step-from", "4"));
set("step-from", "");
look("reward", () => set("reward-to", "0.5"));
set("reward-to", "");
look("text", () => set("text", "ANSWER 2"));
set("text", "");
look("sort", () => set("sort", "reward"));
document.getElementById("theme").click();
told.push("theme=" + document.documentElement.dataset.theme);
told.push("count=" + document.getElementById("count").textContent);
told.push("images=" + document.images.length);
document.title = told.join(";");
</script>
"""
CATCH = "<script>window.onerror = (message) => { document.body.dataset.error = message; };</script>"
HOSTILE = "</script><script>document.body.dataset.owned = 1</script><img src=x onerror=alert(1)>"


@pytest.fixture
def page(tmp_path: Path) -> str:
    run = write_run(tmp_path / "a", rule="differential")
    first = [
        rollout(0, completion="answer 0 " + HOSTILE),
        rollout(1, reward=0.0, kept=False, reason="duplicate", duplicate_of=0, similarity=0.5),
        rollout(2),
    ]
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
        "all": "question 0:#1#2#3 later:#1#2",
        "dropped": "question 0:#2",
        "duplicate": "question 0:#2",
        "kept": "question 0:#1#3 later:#1#2",
        "step": "later:#1#2",
        "reward": "question 0:#2 later:#1#2",
        "text": "question 0:#3",
        "sort": "later:#1#2 question 0:#1#2#3",
        "theme": "dark",
        "count": "5 rollouts in 2 groups match.",
        "images": "0",
    }
    assert "data-error" not in done.stdout
    assert "data-owned" not in done.stdout.partition("<script")[0]
    assert "CONSOLE" not in done.stderr


def test_the_page_opens_without_a_console_message(page: str, tmp_path: Path) -> None:
    done = run_chromium(tmp_path, page)
    assert "CONSOLE" not in done.stderr
    assert 'class="group"' in done.stdout
