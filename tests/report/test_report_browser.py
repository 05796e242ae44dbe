"""The page in headless Chromium: it opens, filters, sorts, and reports no error."""

import base64
import html
import subprocess
from pathlib import Path

import pytest
from chromium import CHROMIUM, SWITCHES, chromium_tab
from report_runs import rollout, write_rollouts, write_run, write_scores

from fastrl.report.page import build_report

pytest.importorskip("pyarrow")
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
        *SWITCHES,
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


NARROW, PAPER = 390, 718  # pixels: a phone; A4 between margins of a centimetre
# What reaches beyond the right edge and cannot be scrolled into view.
BEYOND = """
[...document.querySelectorAll("body *")].filter((element) =>
  element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(SCROLLED)
).map((element) => element.tagName + " " + (element.textContent || "").slice(0, 40))
"""
SHOWN = """
[...document.querySelectorAll(WHAT)].filter((element) => element.offsetHeight > 0).length
"""


@pytest.fixture
def wide_page(tmp_path: Path) -> Path:
    """A page with twelve arms of long names, and a completion without a blank."""
    folder = tmp_path / "c"
    for number in range(12):
        for seed in (1, 2):
            name = f"arm-{number}-of-a-longer-name-seed{seed}"
            rule = "differential" if number else "none"
            kept = 2.0 if number else 8.0
            run = write_run(folder / name, rule=rule, seed=seed, kept=kept, update=50.0 - number)
            write_scores(run, (0.25, 0.5, 0.7 + seed / 20 - number / 100))
    rows = [rollout(0, completion="word " * 400), rollout(1, completion="a" * 900), rollout(2)]
    write_rollouts(folder / "arm-1-of-a-longer-name-seed1", 0, rows)
    path = tmp_path / "wide.html"
    path.write_text(build_report([folder]).html, encoding="utf-8")
    return path


def test_a_phone_shows_everything_without_sideways_scrolling(
    wide_page: Path, tmp_path: Path
) -> None:
    with chromium_tab(tmp_path / "profile") as tab:
        tab.open(wide_page, width=NARROW, mobile=True)
        assert tab.value("innerWidth") == NARROW
        assert tab.value("document.documentElement.scrollWidth") == NARROW
        # Tables and listings scroll by themselves.
        assert tab.value(BEYOND.replace("SCROLLED", '".scroll, pre"')) == []
        assert tab.value(SHOWN.replace("WHAT", '".scroll"')) >= 8
        assert tab.value("getComputedStyle(document.querySelector('.scroll')).overflowX") == "auto"
        assert tab.value(SHOWN.replace("WHAT", '".group"')) == 1
        assert tab.value("document.querySelector('svg.chart').getBoundingClientRect().width") > 300


def test_paper_shows_everything_whole(wide_page: Path, tmp_path: Path) -> None:
    with chromium_tab(tmp_path / "profile") as tab:
        tab.open(wide_page, width=PAPER)
        on_screen = tab.value(SHOWN.replace("WHAT", '"table, figure, .tile, .rollout, .note"'))
        tab.value("document.documentElement.dataset.theme = 'dark'")
        tab.value("document.querySelector('details').open = true")
        tab.call("Emulation.setEmulatedMedia", media="print")
        assert tab.value("matchMedia('print').matches")
        assert tab.value(BEYOND.replace("SCROLLED", '"x-none"')) == []
        cut = """[...document.querySelectorAll("body *")].filter((element) =>
          getComputedStyle(element).overflow !== "visible" && !element.closest("svg") &&
          (element.scrollHeight > element.clientHeight + 1 ||
           element.scrollWidth > element.clientWidth + 1)).map((element) => element.className)"""
        assert tab.value(cut) == []
        # All but the controls is there, dark on white whatever the screen has.
        assert tab.value(SHOWN.replace("WHAT", '"table, figure, .tile, .rollout, .note"')) == (
            on_screen
        )
        assert tab.value(SHOWN.replace("WHAT", '".controls, nav, #theme, #more"')) == 0
        style = "getComputedStyle(document.body)"
        assert tab.value(f"{style}.backgroundColor") == "rgb(255, 255, 255)"
        assert tab.value(f"{style}.color") == "rgb(29, 36, 51)"
