"use strict";
// Completions are untrusted: they reach the page through textContent only, never as HTML.
(() => {
  const PAGE = 20;
  const REASONS = {
    seed: "stands for its advantage",
    different: "another path",
    refill: "fills the batch up",
    duplicate: "repeats another",
    no_contrast: "no contrast",
    rule: "the rule's choice",
    resampled: "group replaced by another",
  };
  const $ = (id) => document.getElementById(id);
  const { groups, pictures, runs, first } = JSON.parse($("data").textContent);
  let shown = PAGE;

  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
  if (!groups.length) return;

  const element = (tag, kind, text) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const addOption = (select, value, text) => {
    const option = element("option", "", text);
    option.value = value;
    select.append(option);
  };
  const number = (value, digits) => (value === null ? "none" : value.toFixed(digits));
  const bound = (id, otherwise) => ($(id).value === "" ? otherwise : Number($(id).value));
  const verdict = (rollout) => (rollout.kept ? "kept" : "dropped");
  const verdictAndReason = (rollout) => `${verdict(rollout)}:${rollout.reason}`;

  groups.forEach((group) => {
    const rewards = group.rollouts.map((r) => r.reward).filter((r) => r !== null);
    group.reward = rewards.reduce((sum, r) => sum + r, 0) / Math.max(rewards.length, 1);
    group.spread = rewards.length ? Math.max(...rewards) - Math.min(...rewards) : 0;
    group.dropped = group.rollouts.filter((r) => !r.kept).length;
    group.similarity = Math.max(-1, ...group.rollouts.map((r) => r.similarity ?? -1));
    group.rollouts.forEach((rollout, index) => { rollout.number = index + 1; });
    // Highest advantage first; what repeats a rollout stands below it.
    const head = (rollout) => group.rollouts[rollout.other - 1] ?? rollout;
    const key = (rollout) => [
      -(head(rollout).advantage ?? -Infinity), head(rollout).number,
      Number(rollout !== head(rollout)), rollout.number];
    group.repeats = [...group.rollouts].sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      const at = left.findIndex((value, i) => value !== right[i]);
      return at < 0 ? 0 : left[at] - right[at];
    });
  });

  addOption($("run"), "", "all");
  runs.forEach((run) => addOption($("run"), run, run));
  $("run").value = first;
  const all = groups.flatMap((group) => group.rollouts).filter((r) => r.reason);
  [...new Set(all.map(verdictAndReason))].sort().reverse().forEach((pair) => {
    const [state, reason] = pair.split(":");
    addOption($("state"), pair, `${state}: ${REASONS[reason] ?? reason}`);
  });

  const matches = (rollout, query) => {
    const reward = rollout.reward === null ? NaN : rollout.reward;
    const inRange = query.isOpen || (reward >= query.low && reward <= query.high);
    const inState = ["", verdict(rollout), verdictAndReason(rollout)].includes(query.state);
    return inRange && inState && rollout.completion.toLowerCase().includes(query.text);
  };

  const found = () => {
    const query = {
      state: $("state").value,
      text: $("text").value.toLowerCase(),
      low: bound("reward-from", -Infinity),
      high: bound("reward-to", Infinity),
      isOpen: $("reward-from").value === "" && $("reward-to").value === "",
    };
    const run = $("run").value;
    const from = bound("step-from", -Infinity);
    const to = bound("step-to", Infinity);
    const inOrder = $("order").value === "repeats" ? (g) => g.repeats : (g) => g.rollouts;
    const [key, order] = $("sort").value.split("-");
    const sign = order === "desc" ? -1 : 1;
    return groups
      .filter((g) => (!run || g.run === run) && g.step >= from && g.step <= to)
      .map((group) => ({ group, rollouts: inOrder(group).filter((r) => matches(r, query)) }))
      .filter((entry) => entry.rollouts.length)
      .sort((a, b) => sign * (a.group[key] - b.group[key]));
  };

  const whyView = (rollout, point) => {
    const view = element("span", "why");
    const name = "#" + rollout.other;
    const at = rollout.other ? rollout.why.indexOf(name) : -1;
    if (at < 0) {
      view.textContent = rollout.why;
      return view;
    }
    const link = element("button", "ref", name);
    link.type = "button";
    link.addEventListener("click", () => point(rollout.other));
    view.append(rollout.why.slice(0, at), link, rollout.why.slice(at + name.length));
    return view;
  };

  const rolloutView = (rollout, point) => {
    const view = element("div", `rollout ${verdict(rollout)}`);
    view.dataset.number = rollout.number;
    const cut = rollout.full_length ? `\n\u2026 (${rollout.full_length} characters)` : "";
    const parts = Object.entries(rollout.parts).map(
      ([name, value]) => `${name.replace(/_reward$/, "")} ${number(value, 2)}`);
    const told = element("div", "told");
    told.append(element("span", "chip", verdict(rollout)), " ", whyView(rollout, point));
    const facts = element("div", "facts");
    const score = element("div");
    score.append(
      element("b", "", `reward ${number(rollout.reward, 2)}`),
      ` \u00b7 advantage ${number(rollout.advantage, 3)}`);
    facts.append(score);
    if (parts.length > 1) facts.append(element("div", "", parts.join(", ")));
    view.append(element("div", "number", "#" + rollout.number));
    view.append(element("div", "text", (rollout.completion || "(empty)") + cut));
    view.append(facts, told);
    return view;
  };

  const strip = (group) => {
    const view = element("span", "strip");
    view.setAttribute("aria-hidden", "true");
    group.rollouts.forEach((rollout) => view.append(element("i", verdict(rollout))));
    return view;
  };

  const groupView = ({ group, rollouts }) => {
    const view = element("article", "group");
    const kept = group.rollouts.length - group.dropped;
    const meta = element("div", "meta");
    meta.append(
      element("span", "", group.run), element("span", "", `step ${group.step}`),
      element("span", "", `group ${group.group}`),
      element("span", "", `mean reward ${group.reward.toFixed(2)}`), strip(group),
      element("span", "", `kept ${kept} of ${group.rollouts.length}`));
    const question = element("div", "asked");
    const hasPicture = group.picture !== undefined;
    if (hasPicture) {
      const picture = element("img");
      picture.src = pictures[group.picture];
      picture.alt = "picture of the question";
      picture.loading = "lazy";
      question.append(picture);
    }
    const prompt = hasPicture ? group.prompt.replace("<image>", "").trim() : group.prompt;
    question.append(element("div", "question", prompt));
    const list = element("div", "rollouts");
    const fill = (some) => {
      list.replaceChildren(...some.map((rollout) => rolloutView(rollout, point)));
      if (some.length < group.rollouts.length) {
        const rest = group.rollouts.length - some.length;
        const button = element("button", "ref whole", `${rest} more of this group`);
        button.type = "button";
        button.addEventListener("click", () => fill(group.repeats));
        list.append(button);
      }
    };
    // A filter may have left out the rollout that another one repeats: then all are shown.
    const point = (wanted) => {
      const at = () => list.querySelector(`[data-number="${wanted}"]`);
      if (!at()) fill(group.repeats);
      list.querySelectorAll(".pointed").forEach((other) => other.classList.remove("pointed"));
      at().classList.add("pointed");
      at().scrollIntoView({ block: "nearest" });
    };
    fill(rollouts);
    const body = element("div", hasPicture ? "body pictured" : "body");
    body.append(question, list);
    view.append(meta, body);
    return view;
  };

  const draw = () => {
    const entries = found();
    $("groups").replaceChildren(...entries.slice(0, shown).map(groupView));
    const total = entries.reduce((sum, entry) => sum + entry.rollouts.length, 0);
    $("count").textContent = `${total} rollouts in ${entries.length} groups match.`;
    $("more").hidden = entries.length <= shown;
  };

  document.querySelectorAll(".controls select, .controls input").forEach((control) => {
    control.addEventListener("input", () => { shown = PAGE; draw(); });
  });
  $("more").addEventListener("click", () => { shown += PAGE; draw(); });
  draw();
})();
