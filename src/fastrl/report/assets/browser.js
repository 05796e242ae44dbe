"use strict";
// Completions are untrusted: they reach the page through textContent only, never as HTML.
(() => {
  const PAGE = 20;
  const $ = (id) => document.getElementById(id);
  const { groups, runs, first } = JSON.parse($("data").textContent);
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
  const number = (value, digits) => (value === null ? "none" : value.toFixed(digits));
  const bound = (id, otherwise) => ($(id).value === "" ? otherwise : Number($(id).value));

  groups.forEach((group) => {
    const rewards = group.rollouts.map((r) => r.reward).filter((r) => r !== null);
    group.reward = rewards.reduce((sum, r) => sum + r, 0) / Math.max(rewards.length, 1);
    group.spread = rewards.length ? Math.max(...rewards) - Math.min(...rewards) : 0;
    group.dropped = group.rollouts.filter((r) => !r.kept).length;
    group.rollouts.forEach((rollout, index) => { rollout.number = index + 1; });
  });

  ["", ...runs].forEach((run) => {
    const option = element("option", "", run || "all");
    option.value = run;
    $("run").append(option);
  });
  $("run").value = first;

  const matches = (rollout, query) => {
    const reward = rollout.reward === null ? NaN : rollout.reward;
    const inRange = query.isOpen || (reward >= query.low && reward <= query.high);
    const state = rollout.kept ? "kept" : "dropped";
    const inState = !query.state || query.state === state || query.state === rollout.reason;
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
    const [key, order] = $("sort").value.split("-");
    const sign = order === "desc" ? -1 : 1;
    return groups
      .filter((g) => (!run || g.run === run) && g.step >= from && g.step <= to)
      .map((group) => ({ group, rollouts: group.rollouts.filter((r) => matches(r, query)) }))
      .filter((entry) => entry.rollouts.length)
      .sort((a, b) => sign * (a.group[key] - b.group[key]));
  };

  const rolloutView = (rollout) => {
    const view = element("div", "rollout " + (rollout.kept ? "kept" : "dropped"));
    const cut = rollout.full_length ? `\n\u2026 (${rollout.full_length} characters)` : "";
    const facts = element("div", "facts");
    const verdict = element("div");
    verdict.append(element("span", "chip", rollout.kept ? "kept" : "dropped"));
    verdict.append(element("span", "why", " " + rollout.why));
    const parts = Object.entries(rollout.parts).map(
      ([name, value]) => `${name.replace(/_reward$/, "")} ${number(value, 2)}`);
    const sum = parts.length > 1 ? ` (${parts.join(", ")})` : "";
    facts.append(verdict);
    facts.append(element("div", "", `advantage ${number(rollout.advantage, 3)}`));
    facts.append(element("div", "", `reward ${number(rollout.reward, 2)}${sum}`));
    view.append(element("div", "number", "#" + rollout.number));
    view.append(element("div", "text", (rollout.completion || "(empty)") + cut));
    view.append(facts);
    return view;
  };

  const groupView = ({ group, rollouts }) => {
    const view = element("article", "group");
    const kept = group.rollouts.length - group.dropped;
    const some = rollouts.length < group.rollouts.length ? `, ${rollouts.length} shown` : "";
    view.append(element("div", "meta",
      `${group.run} \u00b7 step ${group.step} \u00b7 group ${group.group} \u00b7 ` +
      `kept ${kept} of ${group.rollouts.length}${some} \u00b7 mean reward ${group.reward.toFixed(2)}`));
    if (group.picture) {
      const picture = element("img");
      picture.src = group.picture;
      picture.alt = "picture of the question";
      picture.loading = "lazy";
      view.append(picture);
    }
    view.append(element("div", "question", group.prompt));
    rollouts.forEach((rollout) => view.append(rolloutView(rollout)));
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
