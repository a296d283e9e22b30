"use strict";
// Texts from the data only ever become text nodes.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent), lists = data.lists;
  const minus = (words) => words.replace(/(^|[\s(])-(?=\d)/g, "$1−");
  const texts = data.texts.map(minus);
  const at = (id) => document.getElementById(id);
  const number = (value, digits) => (value === null ? "–" : value.toFixed(digits).replace("-", "−"));
  const percent = (p) => (p >= 0.1 ? (100 * p).toFixed(0) : (100 * p).toPrecision(2).replace("-", "−")) + " %";
  const gev = (mev, digits = 1) => number(mev / 1000, digits);

  function element(name, attributes = {}, ...children) {
    const node = name.startsWith("svg:")
      ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }
  // A row of a table; a column is [its name where there are no headings, class, content].
  const tableRow = (...columns) =>
    element("tr", {}, ...columns.map(([name, kind, content]) => element("td", { "data-name": name, class: kind }, content)));

  // Contribution: from pale to dark, so that it is read in grey too.
  const stops = [[255, 240, 214], [247, 178, 98], [206, 73, 46], [84, 13, 35]];
  let highest = 1;
  function color(contribution) {
    if (contribution === null) return "#fff";
    const x = Math.min(Math.max(contribution / highest, 0), 1) * (stops.length - 1);
    const i = Math.min(Math.floor(x), stops.length - 2);
    return `rgb(${stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * (x - i))).join(" ")})`;
  }

  let list = 0, event = null, masked = 0;

  // The list and its filters
  const rowsOf = (n) => [...document.querySelectorAll(`.event-list[data-list="${n}"] tbody tr`)];
  const shownRows = () => rowsOf(list).filter((row) => !row.hidden);

  function fill(select, values) {
    const old = select.value;
    select.replaceChildren(element("option", { value: "" }, "all"), ...values.map((v) => element("option", { value: v }, v)));
    select.value = values.includes(old) ? old : "";
    select.parentElement.hidden = values.length < 2;
  }

  function chooseList(n) {
    list = n;
    for (const one of document.querySelectorAll(".event-list")) one.hidden = Number(one.dataset.list) !== n;
    const rows = rowsOf(n);
    for (const key of ["process", "label"])
      fill(at(`choose-${key}`), [...new Set(rows.map((row) => row.dataset[key]))].sort());
    highest = Math.max(1e-9, ...lists[n].flatMap((e) => [...e.objects.map((o) => o[6]), e.met[2]]).filter((s) => s !== null));
    filter();
  }

  function filter() {
    const process = at("choose-process").value, label = at("choose-label").value;
    const rows = rowsOf(list);
    for (const row of rows)
      row.hidden = (process && row.dataset.process !== process) || (label && row.dataset.label !== label);
    const shown = shownRows();
    at("n-shown").textContent = `${shown.length} of ${rows.length} events`;
    if (shown.length && !shown.some((row) => row.hasAttribute("aria-current"))) choose(shown[0]);
  }

  function choose(row) {
    for (const other of document.querySelectorAll(".event-list tr[aria-current]")) other.removeAttribute("aria-current");
    row.setAttribute("aria-current", "true");
    event = lists[list][Number(row.dataset.event)];
    showEvent(row.dataset.p);
    masked = 0;
    showWalk();
  }

  // One event
  function showEvent(pValue) {
    at("event-title").textContent = `Rank ${event.rank}: ${event.process}, ${event.label}`;
    const metadata = {
      "score": number(event.score, 4),
      ...(pValue ? { "p": pValue } : {}),
      "MET [GeV]": gev(event.met[0]),
      "MET φ": number(event.met[1], 2),
      "objects": String(event.objects.length),
      "weight": String(Number(event.weight.toPrecision(4))),
      "file": event.file,
      "row": String(event.row),
      "event id": String(event.id),
    };
    at("event-metadata").replaceChildren(
      ...Object.entries(metadata).map(([k, v]) => element("div", {}, element("dt", {}, k), element("dd", {}, v))));
    at("display").replaceChildren(drawEvent());
    showObjects();
  }

  const tokenOf = (i) => event.tokens.find((token) => token[7] === i);

  function expectedWords(token) {
    const words = document.createDocumentFragment();
    token[6].forEach(([text, p], i) => words.append(i ? "; " : "", texts[text], element("span", { class: "probability" }, ` (${percent(p)})`)));
    return words;
  }

  function contributionCell(contribution) {
    const cell = document.createDocumentFragment();
    cell.append(element("span", { class: "swatch", style: `background:${color(contribution)}` }), number(contribution, 2));
    return cell;
  }

  function showObjects() {
    const columns = (place, name, pt, eta, phi, energy, contribution, token) => tableRow(
      ["", "", place], ["", "name", name], ["pT", "", pt], ["η", "", eta], ["φ", "", phi], ["E", "", energy],
      ["contribution", "", contributionCell(contribution)], ["probability", "", token ? percent(token[3]) : "–"],
      ["model expected", "words", token ? expectedWords(token) : "–"]);
    const rows = event.objects.map(([, name, pt, eta, phi, energy, contribution], i) =>
      columns(String(i + 1), name, gev(pt), number(eta, 2), number(phi, 2), gev(energy), contribution, tokenOf(i)));
    const [met, metPhi, metContribution] = event.met;
    const ofMet = event.tokens.filter((token) => token[7] === null && texts[token[0]].startsWith("MET"));
    for (const token of ofMet) {
      const name = texts[token[0]], isPhi = name.includes("phi");
      rows.push(columns("", name, isPhi ? "" : gev(met), "", isPhi || ofMet.length === 1 ? number(metPhi, 2) : "", "", token[2], token));
    }
    if (!ofMet.length) rows.push(columns("", "MET", gev(met), "", number(metPhi, 2), "", metContribution, null));
    at("object-rows").replaceChildren(...rows);
    at("objects-note").hidden = !event.tokens.length;
    const isUnjudged = [metContribution, ...event.objects.map((object) => object[6])].every((one) => one === null);
    at("object-table").classList.toggle("unjudged", isUnjudged);
    at("object-table").classList.toggle("tokenless", !event.tokens.length);
    at("contribution-note").hidden = isUnjudged;
    at("contribution-meaning").textContent = event.tokens.length ? "token loss, −ln of the probability that the model gave to what was there"
      : "by how much the score falls without the object";
    at("terms").hidden = !event.terms.length;
    at("term-rows").replaceChildren(...event.terms.map(([name, text, , contribution]) =>
      tableRow(["", "name", name], ["", "words", minus(text)], ["contribution", "", number(contribution, 2)])));
  }

  function drawEvent() {
    const width = Math.max(300, Math.min(680, at("display").clientWidth)), height = Math.min(430, width), left = 46, right = 14, top = 14, bottom = 46;
    const range = Math.max(3, Math.ceil(Math.max(0, ...event.objects.map((o) => Math.abs(o[3])))));
    const x = (eta) => left + ((eta + range) / (2 * range)) * (width - left - right);
    const y = (phi) => top + ((Math.PI - phi) / (2 * Math.PI)) * (height - top - bottom);
    const svg = element("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "font-family": "system-ui, sans-serif",
      "aria-label": `Objects of the event of rank ${event.rank} in eta and phi; the table of objects has the numbers` });
    const text = (px, py, words, more = {}) => element("svg:text", { x: px, y: py, "font-size": 12, fill: "#444", ...more }, words);
    const line = (x1, y1, x2, y2, more = {}) => element("svg:line", { x1, y1, x2, y2, stroke: "#e3e5e8", ...more });

    const step = range > 4 ? 2 : 1;
    for (let eta = -Math.floor(range / step) * step; eta <= range; eta += step)
      svg.append(line(x(eta), top, x(eta), height - bottom), text(x(eta), height - bottom + 17, number(eta, 0), { "text-anchor": "middle" }));
    for (const [phi, words] of [[-Math.PI, "−π"], [-Math.PI / 2, "−π/2"], [0, "0"], [Math.PI / 2, "π/2"], [Math.PI, "π"]])
      svg.append(line(left, y(phi), width - right, y(phi)), text(left - 8, y(phi) + 4, words, { "text-anchor": "end" }));
    svg.append(text((left + width - right) / 2, height - 8, "η", { "text-anchor": "middle", "font-size": 14 }),
      text(12, (top + height - bottom) / 2, "φ", { "text-anchor": "middle", "font-size": 14 }));

    // Circles of area proportional to pT, the largest behind; a minimum keeps soft objects visible.
    const hardest = Math.max(100e3, ...event.objects.map((o) => o[2]));
    const circles = event.objects.map(([symbol, name, pt, eta, phi, , contribution], i) =>
      ({ i, symbol, name, pt, contribution, cx: x(eta), cy: y(phi), r: Math.max(4, width / 26 * Math.sqrt(pt / hardest)) }))
      .sort((a, b) => b.r - a.r);
    const taken = circles.map((c) => [c.cx - c.r, c.cy - c.r, c.cx + c.r, c.cy + c.r]);

    // The MET has a direction in phi only: an arrow along its phi, longer for a larger MET.
    const [met, metPhi, metContribution] = event.met, my = y(metPhi);
    const length = (0.06 + 0.2 * met / Math.max(hardest, met)) * width, tail = width - right, tip = tail - length;
    svg.append(line(left, my, tip, my, { stroke: "#777", "stroke-dasharray": "1 5" }),
      line(tail, my, tip + 9, my, { stroke: "#222", "stroke-width": 2.2, "stroke-dasharray": "7 3" }),
      element("svg:path", { d: `M${tip} ${my}l11 -5.5v11z`, fill: "#222" }));

    taken.push([tip, my - 6, tail, my + 6]);

    for (const c of circles) {
      const circle = element("svg:circle", { cx: c.cx, cy: c.cy, r: c.r, fill: color(c.contribution), stroke: "#222", "stroke-width": 1 });
      circle.append(element("svg:title", {}, `${c.name}, pT ${gev(c.pt)} GeV, contribution ${number(c.contribution, 2)}`));
      svg.append(circle);
    }
    const signs = { "e-": "e⁻", "e+": "e⁺", "m-": "μ⁻", "m+": "μ⁺", "g": "γ" };
    const overlap = ([a, b, c, d]) =>
      taken.reduce((sum, [e, f, g, h]) => sum + Math.max(0, Math.min(c, g) - Math.max(a, e)) * Math.max(0, Math.min(d, h) - Math.max(b, f)), 0)
      + 1e3 * (Math.max(0, left - a) + Math.max(0, c - (width - right)) + Math.max(0, top - b) + Math.max(0, d - (height - bottom)));
    const place = (words, cx, cy, r) => {
      const w = 7.2 * words.length + 2, h = 14, d = r * 0.75 + 3;
      const boxes = [[cx + r + 3, cy - h / 2], [cx - r - 3 - w, cy - h / 2], [cx - w / 2, cy - r - h - 2], [cx - w / 2, cy + r + 2],
        [cx + d, cy - d - h + 4], [cx + d, cy + d - 4], [cx - d - w, cy - d - h + 4], [cx - d - w, cy + d - 4]]
        .map(([a, b]) => [a, b, a + w, b + h]);
      const best = boxes.reduce((one, other) => (overlap(other) < overlap(one) - 1e-6 ? other : one));
      taken.push(best);
      return text(best[0] + 1, best[3] - 3, words,
        { "font-size": 12.5, fill: "#111", "font-weight": 600, stroke: "#fff", "stroke-width": 3, "paint-order": "stroke" });
    };
    const label = (name, contribution) => name + (contribution === null ? "" : " " + number(contribution, 1));
    svg.append(place(label("MET", metContribution), (tail + tip) / 2, my, 6));
    for (const c of circles) svg.append(place(label(signs[c.symbol] ?? c.symbol, c.contribution), c.cx, c.cy, c.r));
    return svg;
  }

  // The walk
  function showWalk() {
    const tokens = event.tokens;
    at("walk-body").hidden = !tokens.length;
    at("walk-none").hidden = tokens.length > 0;
    if (!tokens.length) return;
    at("walk-place").textContent = `token ${masked + 1} of ${tokens.length}`;
    at("previous").disabled = masked === 0;
    at("next").disabled = masked === tokens.length - 1;
    at("tokens").replaceChildren(...tokens.map(([name, , tokenLoss, , , , , object], i) => {
      const isMasked = i === masked;
      const detail = object !== null ? `${gev(event.objects[object][2], 0)} GeV, η ${number(event.objects[object][3], 1)}`
        : texts[name] === "MET" ? `${gev(event.met[0], 0)} GeV`
        : texts[name].startsWith("MET") ? number(event.met[1], 2) : "";
      const button = element("button", { type: "button", "aria-label": `Mask token ${i + 1}, ${texts[name]}` },
        element("b", {}, isMasked ? "[masked]" : texts[name]), element("span", {}, isMasked ? "?" : detail || "\u00a0"),
        element("span", {}, `token loss ${number(tokenLoss, 1)}`));
      if (isMasked) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => step(i));
      return element("li", {}, button);
    }));
    const [name, text, tokenLoss, probability, observed, observedProbability, expected] = tokens[masked];
    const largest = Math.max(observedProbability, ...expected.map((guess) => guess[1]), 1e-12);
    const row = (words, p) =>
      tableRow(["", "text", words], ["", "", percent(p)],
        ["", "", element("div", { class: "bar", style: `width:${Math.max(0.5, (100 * p) / largest)}%` })]);
    const observedRow = row(`observed: ${texts[observed]}`, observedProbability);
    observedRow.className = "observed";
    at("masked").replaceChildren(
      element("p", {}, element("strong", {}, `Under the mask: ${texts[name]}. `), ["empty slot", texts[text]].includes(texts[name]) ? "" : `${texts[text]}.`),
      element("p", {}, `Probability of exactly this token ${percent(probability)}, token loss ${number(tokenLoss, 2)}.`),
      element("table", {}, element("tbody", {},
        ...expected.map(([words, p]) => row(`expected: ${texts[words]}`, p)), observedRow)));
  }

  function step(i) {
    const hadFocus = at("tokens").contains(document.activeElement);
    masked = Math.min(Math.max(i, 0), event.tokens.length - 1);
    showWalk();
    if (hadFocus) at("tokens").querySelector("[aria-current]").focus();
  }

  document.documentElement.classList.add("js");
  for (const body of document.querySelectorAll(".event-list tbody")) {
    body.addEventListener("click", (click) => choose(click.target.closest("tr")));
    body.addEventListener("keydown", (key) => {
      const move = { ArrowDown: 1, ArrowUp: -1 }[key.key];
      if (!move) return;
      key.preventDefault();
      const rows = shownRows(), next = rows[rows.indexOf(key.target.closest("tr")) + move];
      if (next) { choose(next); next.querySelector("button").focus(); }
    });
  }
  if (at("choose-list")) at("choose-list").addEventListener("change", (change) => chooseList(Number(change.target.value)));
  for (const id of ["choose-process", "choose-label"]) at(id).addEventListener("change", filter);
  at("previous").addEventListener("click", () => step(masked - 1));
  at("next").addEventListener("click", () => step(masked + 1));
  at("walk-body").addEventListener("keydown", (key) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[key.key];
    if (move) { key.preventDefault(); step(masked + move); }
  });
  window.addEventListener("resize", () => at("display").replaceChildren(drawEvent()));
  chooseList(0);
})();
