"use strict";
(() => {
  const { study, pairs } = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const shelf = "ebar-ratings-" + study;
  const buttons = [...document.querySelectorAll("[data-choice]")];
  let choices = {};
  let place = 0;

  const complain = (text) => { at("notice").textContent = text; at("notice").hidden = false; };

  const load = () => {
    try {
      const kept = JSON.parse(localStorage.getItem(shelf) || "{}");
      at("rater").value = typeof kept.rater === "string" ? kept.rater : "";
      for (const [name] of pairs) {
        const choice = (kept.choices || {})[name];
        if (["A", "B", "tie"].includes(choice)) choices[name] = choice;
      }
    } catch (error) {
      complain("Earlier choices could not be read in this browser.");
    }
  };

  const keep = () => {
    try {
      localStorage.setItem(shelf, JSON.stringify({ rater: at("rater").value, choices }));
    } catch (error) {
      complain("This browser keeps nothing for this page: save your ratings before you close it.");
    }
  };

  const show = (focus) => {
    const [name, prefix, a, b] = pairs[place];
    at("heading").textContent = "Pair " + (place + 1) + " of " + pairs.length;
    at("prefix").textContent = prefix;
    at("a").textContent = a;
    at("b").textContent = b;
    for (const button of buttons) button.setAttribute("aria-pressed", String(choices[name] === button.dataset.choice));
    const done = Object.keys(choices).length;
    at("count").textContent = done + " of " + pairs.length + " rated";
    at("progress").max = pairs.length;
    at("progress").value = done;
    at("back").disabled = place === 0;
    at("on").disabled = place === pairs.length - 1;
    if (focus) at("heading").focus();
  };

  const move = (by) => {
    const there = place + by;
    if (there < 0 || there >= pairs.length) return;
    place = there;
    show(true);
  };

  const unrated = (from) => {
    for (let step = 1; step <= pairs.length; step += 1) {
      const there = (from + step) % pairs.length;
      if (!(pairs[there][0] in choices)) return there;
    }
    return -1;
  };

  const choose = (choice) => {
    choices[pairs[place][0]] = choice;
    keep();
    const shown = place + 1;
    const next = unrated(place);
    if (next >= 0) place = next;
    at("said").textContent = "Pair " + shown + ": " + (choice === "tie" ? "no difference" : choice + " is better") +
      (next < 0 ? ". All pairs are rated: please save the file and send it back." : ".");
    show(next >= 0);
  };

  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  const rated = () => pairs.map(([name]) => name).filter((name) => name in choices);
  const cell = (text) => '"' + String(text).replaceAll('"', '""') + '"';

  const asJson = () => JSON.stringify({
    study, rater: at("rater").value.trim(), ratings: rated().map((name) => ({ pair: name, choice: choices[name] })),
  }, null, 1) + "\n";

  const asCsv = () => ["study,rater,pair,choice", ...rated().map((name) =>
    [study, at("rater").value.trim(), name, choices[name]].map(cell).join(","))].join("\r\n") + "\r\n";

  const stem = () => "ratings-" + study + "-" + (at("rater").value.trim().replace(/[^\p{L}\p{N}]+/gu, "_") || "rater");

  for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.choice));
  at("back").addEventListener("click", () => move(-1));
  at("on").addEventListener("click", () => move(1));
  at("rater").addEventListener("input", keep);
  at("json").addEventListener("click", () => save(stem() + ".json", "application/json", asJson()));
  at("csv").addEventListener("click", () => save(stem() + ".csv", "text/csv", asCsv()));
  at("clear").addEventListener("click", () => {
    if (!confirm("Forget all choices made on this page?")) return;
    choices = {};
    place = 0;
    keep();
    at("said").textContent = "All choices are forgotten.";
    show(true);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.target === at("rater")) return;
    const key = event.key.toLowerCase();
    const meant = { a: "A", b: "B", t: "tie" }[key];
    if (meant) choose(meant);
    else if (key === "arrowleft") move(-1);
    else if (key === "arrowright") move(1);
    else return;
    event.preventDefault();
  });

  load();
  const first = unrated(pairs.length - 1);
  if (first >= 0) place = first;
  show(false);
})();
