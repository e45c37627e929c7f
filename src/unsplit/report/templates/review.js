// Review: one pair at a time, answers, what they change, undo and export.

// How many unclear pairs the first paragraph names.
const N_FIRST = 3;
const KEYS = { s: "same", d: "different", k: "skip" };

class Review {
  constructor(page) {
    this.page = page;
    this.pairs = page.data.review.pairs;
    this.index = 0;
    this.store = `unsplit-answers-${page.tree.fingerprint}`;
    this.answers = this.kept();
    byId("export").addEventListener("click", () => this.export());
    byId("clear").addEventListener("click", () => this.change(this.answers.length > 0 ? [] : page.given));
    document.addEventListener("keydown", (event) => this.key(event));
    byId("toast-undo").addEventListener("click", () => this.undo());
    this.introduce();
  }

  introduce() {
    const { n_pairs: all } = this.page.data.review;
    const unclear = this.pairs.filter((pair) => pair.verdict === "unclear").length;
    const urgent = unclear === 0 ? "The least certain pairs come first." : `${counted(unclear, "unclear pair")} ${unclear === 1 ? "comes" : "come"} first.`;
    const first = this.pairs.length < all ? ` The ${whole(this.pairs.length)} most urgent of ${whole(all)} are here.` : "";
    byId("review-intro").textContent = this.pairs.length === 0
      ? "There is no pair to review."
      : `Do these two belong together? ${urgent}${first} ${this.page.data.live
        ? `Every answer merges again at once and is saved in ${this.page.data.live}.` : "Your answers stay in this browser; export them below to merge again."}`;
    if (this.pairs.length > 0) byId("look-title").textContent = unclear > 0 ? "Look first at:" : "The least certain decision:";
    byId("look").append(...this.pairs.slice(0, Math.max(1, Math.min(N_FIRST, unclear))).map((pair, index) => element("li", null,
      element("a", { href: "#review", onclick: () => this.show(index, true) },
        ["left", "right"].map((side) => nodeName(this.page.tree, pair[side])).join(" and ")),
      ` (${pair.done}${pair.verdict === "unclear" ? ", but unclear" : `: ${pair.verdict}`})`)));
    byId("answers-box").hidden = this.pairs.length === 0;
    byId("card").hidden = this.pairs.length === 0;
  }

  // Only pairs and answers are kept, and the places of those given before; the rest is on the page.
  kept() {
    const { given } = this.page;
    if (this.page.data.live) return given;
    try {
      const found = JSON.parse(remembered(this.store));
      return found?.map((one) => given[one.given] ?? this.answer(one.pair, one.answer)) ?? given;
    } catch {
      return given;
    }
  }

  keep() {
    const { given } = this.page;
    const short = (one) => (given.includes(one) ? { given: given.indexOf(one) } : { pair: one.pair, answer: one.answer });
    if (!remember(this.store, JSON.stringify(this.answers.map(short)))) {
      byId("review-message").textContent = "This browser keeps no answers for the page; export them before you close it.";
    }
  }

  answer(pair, answer) {
    const { members } = this.page.tree;
    const { left, right } = this.pairs[pair];
    return { pair, answer, left: members[left], right: members[right] };
  }

  /** Show a pair where it can be answered. */
  open(index) {
    this.show(index, true);
    byId("review").scrollIntoView();
  }

  /** The pair whose sides are two nodes of the tree; −1 if it is not here. */
  ofNodes(left, right) {
    return this.pairs.findIndex((pair) => (pair.left === left && pair.right === right) || (pair.left === right && pair.right === left));
  }

  /** The smallest pair with one leaf on each side; −1 if there is none. */
  between(a, b) {
    const { members } = this.page.tree;
    const holds = (pair, one, other) => members[pair.left].includes(one) && members[pair.right].includes(other);
    const size = (pair) => members[pair.left].length + members[pair.right].length;
    return this.pairs.reduce((best, pair, index) => {
      if (!holds(pair, a, b) && !holds(pair, b, a)) return best;
      return best < 0 || size(pair) < size(this.pairs[best]) ? index : best;
    }, -1);
  }

  /** The most urgent pair of a leaf; −1 if there is none. */
  of(leaf) {
    const { members } = this.page.tree;
    return this.pairs.findIndex((pair) => [pair.left, pair.right].some((side) => members[side].includes(leaf)));
  }

  give(answer) {
    const message = byId("review-message");
    message.textContent = "";
    if (answer !== "skip") {
      const wanted = this.answer(this.index, answer);
      const against = contradictions(this.page.tree, this.answers, wanted);
      if (against.length > 0) {
        message.textContent = `“${answer}” contradicts your answer ${this.sentence(against[0])}. Take that one back first.`;
        return;
      }
      this.change(this.answers.filter((one) => one.pair !== this.index).concat([wanted]));
      this.toast(this.sentence(wanted));
    }
    if (this.index + 1 < this.pairs.length) this.show(this.index + 1, true);
    else message.textContent = "That was the last pair.";
  }

  /** Say for some seconds what was answered, with a way back. */
  toast(text) {
    clearTimeout(this.fading);
    byId("toast-text").textContent = text;
    byId("toast").hidden = text === "";
    this.fading = setTimeout(() => this.toast(""), 8000);
  }

  undo() {
    this.toast("");
    const last = this.answers.at(-1);
    if (last === undefined) return;
    this.change(this.answers.slice(0, -1));
    this.show(last.pair ?? this.index, true);
    byId("review-message").textContent = `Took back: ${this.sentence(last)}.`;
  }

  change(answers) {
    if (this.leaving) return;
    this.answers = answers;
    if (this.page.data.live) this.send();
    else this.keep();
    this.page.update();
  }

  /** Have the answers merged again and saved; then the page is loaded with the new result. */
  async send() {
    if (this.sending) return; // whoever is sending sends the last answers too
    this.sending = true;
    let [sent, reply] = [null, {}];
    while (sent !== this.answers) {
      sent = this.answers;
      const body = JSON.stringify(exported(this.page.tree, sent));
      try {
        const response = await fetch("answers", { method: "POST", headers: { "Content-Type": "application/json" }, body });
        reply = response.ok ? await response.json() : { message: await response.text() };
      } catch {
        reply = { message: "Your answers are not saved, because unsplit review does not answer. Export them, and start it again." };
      }
      this.page.tree.fingerprint = reply.result ?? this.page.tree.fingerprint;
    }
    this.sending = false;
    if (reply.message) {
      byId("review-message").textContent = reply.message;
      this.draw();
    } else {
      this.leaving = true;
      this.page.reload();
    }
  }

  /** Where the reader is, by names, which a new result has too. */
  place() {
    return { index: this.index, sides: this.sides(this.index), toast: byId("toast").hidden ? "" : byId("toast-text").textContent };
  }

  sides(index) {
    if (this.pairs[index] === undefined) return "";
    return JSON.stringify(namesOf(this.page.tree, this.answer(index, "")).map((names) => names.sort()).sort());
  }

  /** Go to a place that the page of an earlier result had. */
  goTo({ index, sides, toast }) {
    const found = this.pairs.findIndex((_, i) => this.sides(i) === sides);
    this.show(found < 0 ? index : found, true);
    if (toast) this.toast(toast);
  }

  sentence(one) {
    const [left, right] = namesOf(this.page.tree, one).map((names) => listed(names));
    return `${left} and ${right}: ${one.answer}`;
  }

  show(index, focus = false) {
    if (this.pairs.length === 0) return;
    this.index = Math.min(Math.max(index, 0), this.pairs.length - 1);
    byId("card").replaceChildren(...this.card(this.pairs[this.index]));
    if (focus) byId("card").focus({ preventScroll: true });
  }

  card(pair) {
    const given = this.answers.find((one) => one.pair === this.index)?.answer;
    const button = (label, key, onclick, attributes) => element("button", { type: "button", onclick, ...attributes },
      label, key === "" ? null : element("kbd", null, key));
    const choice = (label, key, answer) => button(label, key, () => this.give(answer),
      { "data-answer": answer, "aria-pressed": answer === "skip" ? null : String(given === answer) });
    const step = (label, by) => button(label, "", () => this.show(this.index + by, true),
      { "data-step": by, disabled: this.pairs[this.index + by] === undefined });
    return [
      element("p", { id: "card-title" }, `Pair ${whole(this.index + 1)} of ${whole(this.pairs.length)} · `,
        element("span", { class: "verdict" }, pair.verdict), ` · Unsplit ${pair.done === "merged" ? "merged them" : "kept them apart"}`),
      element("div", { class: "sides" }, this.side("left", pair), this.side("right", pair)),
      this.page.features.mirrored(pair),
      // Where neighbours decided, the network's scores did not: they are folded away.
      element("div", { class: "evidence" }, this.map(pair), pair.strength === null ? this.border(pair) : null),
      this.facts(pair),
      element("div", { class: "choices", role: "group", "aria-label": "Do they belong together?" },
        choice("Same ", "S", "same"), choice("Different ", "D", "different"), choice("Skip ", "K", "skip"),
        button("Undo ", "U", () => this.undo(), { "data-answer": "undo", disabled: this.answers.length === 0 }),
        step("← Previous", -1), step("Next →", 1)),
    ].filter((part) => part !== null);
  }

  side(which, pair) {
    const { tree, exemplars, cut } = this.page;
    const leaves = tree.members[pair[which]];
    const now = [...new Set(leaves.map((leaf) => cut.group[leaf]))];
    const parts = [
      element("h3", null, nodeName(tree, pair[which], 6)),
      element("p", { class: "quiet" }, `${counted(pair[`size_${which}`], "observation")} · now in ${now.length > 1 ? "new clusters" : "new cluster"} ${now.map((one) => isolated(short(this.page.names[one]))).join(", ")}`),
    ];
    if (exemplars.data) parts.push(exemplars.of(leaves, 12));
    return element("div", { class: `side ${which}`, style: { "border-color": colour(which === "left" ? 0 : 1) } }, ...parts);
  }

  /** What decided leads.  Where neighbours did, what the network says is folded away. */
  facts(pair) {
    const list = (rows) => element("dl", { class: "facts" },
      ...rows.flatMap(([name, value]) => [element("dt", null, name), element("dd", null, value)]));
    const [byGraph, byNetwork] = [[["reason", pair.why]], []];
    if (pair.edges !== null) byGraph.push(["neighbours", edgesOf(pair)]);
    if (pair.stability !== null) byGraph.push(["re-merges", togetherIn(pair)]);
    byNetwork.push(pair.tvd === null ? ["distance", plain(pair.height, 3)] : ["TVD", tvdAtLeast(pair.tvd, pair.low)]);
    if (pair.p_adjusted !== null) byNetwork.push(["p-value", `${Number(pair.p_adjusted.toPrecision(2))} if both came from one distribution (adjusted for all pairs)`]);
    if (pair.strength === null) return list([...byGraph, ...byNetwork]);
    return element("div", null, list(byGraph), element("details", null,
      element("summary", null, "TVD and p-value: how well a network tells the two sides apart"),
      list(byNetwork),
      this.border(pair),
      element("p", { class: "quiet" }, "Pieces that were cut out of the features can always be told apart, so a TVD near 1, a tiny p-value and "
        + "two separate heaps are expected here, and no reason to keep two of them apart.")));
  }

  /** Both sides among all observations. */
  map(pair) {
    const { picture, tree } = this.page;
    if (!picture.shown) return null;
    const side = new Map(["left", "right"].flatMap((which, number) => tree.members[pair[which]].map((leaf) => [leaf, number])));
    const canvas = element("canvas", { class: "map", role: "img", "aria-label": "Where both sides lie among all observations" });
    // It has a size only when it is on the page.
    requestAnimationFrame(() => canvas.isConnected && picture.paintSides(canvas, side));
    return element("figure", null, element("figcaption", { class: "quiet" }, "Both sides among all observations."), canvas);
  }

  /** How the network scores both sides: two heaps apart are different, one heap is the same. */
  border(pair) {
    if (pair.border === null) return null;
    const { left, right } = pair.border;
    // Each side has its own scale, so that a small one can be seen beside a large one.
    const bars = (counts, up, look) => counts.map((count, i) => {
      const height = (48 * count) / Math.max(...counts, 1);
      return drawing("rect", { x: i + 0.08, width: 0.84, y: up ? 50 - height : 51, height, ...look });
    });
    const overlap = left.reduce((sum, _, i) => sum + Math.min(left[i], right[i]), 0);
    const label = `Score differences across the border: the two sides ${overlap === 0 ? "do not overlap" : "overlap"}.`;
    const end = plain(pair.border.reach, 1);
    return element("figure", null,
      element("figcaption", { class: "quiet" }, "Score differences of held-out observations, the left side above and the right side below. "
        + "Heaps that lie apart can be told apart; heaps over each other cannot."),
      drawing("svg", { class: "border-figure", viewBox: `0 0 ${left.length} 101`, preserveAspectRatio: "none", role: "img", "aria-label": label },
        ...bars(left, true, { fill: colour(0) }), ...bars(right, false, { fill: colour(1) }),
        drawing("line", { x1: left.length / 2, x2: left.length / 2, y1: 0, y2: 101, stroke: "currentColor", "vector-effect": "non-scaling-stroke", "stroke-dasharray": "3 3" })),
      element("p", { class: "score-axis quiet" }, element("span", null, `−${end}: like the right`), element("span", null, "0"),
        element("span", null, `like the left: ${end}`)));
  }

  draw() {
    this.show(this.index);
    const { plainCut, cut, given } = this.page;
    const effect = byId("effect");
    const unchanged = this.answers.length === given.length && given.every((one) => this.answers.includes(one));
    if (unchanged && given.length > 0) {
      effect.textContent = `${counted(given.length, "answer")}${this.page.data.live ? "" : " given before"}: this result obeys ${given.length === 1 ? "it" : "them"}.`
        + `${this.page.data.live ? "" : " Your new answers are added."}`;
    } else if (this.answers.length === 0 && given.length === 0) effect.textContent = "None yet. What they change is shown here and in all figures at once.";
    else {
      const moved = this.page.movedBy(plainCut, cut);
      effect.textContent = `${counted(this.answers.length, "answer")}: ${whole(plainCut.count)} → ${counted(cut.count, "cluster")}; `
        + (moved.length === 0 ? "no cluster moves." : `these old clusters move: ${groupName(this.page.tree, moved, 8)}.`)
        + (this.sending ? " Merging again …" : " Merge again for the final result.");
    }
    byId("answers").replaceChildren(...this.answers.map((one) => element("li", null, this.sentence(one),
      given.includes(one) && !this.page.data.live ? element("span", { class: "quiet" }, " (given before)") : null,
      element("button", { type: "button", "aria-label": `Take back: ${this.sentence(one)}`,
        onclick: () => this.change(this.answers.filter((other) => other !== one)) }, "take back"))));
    byId("export").disabled = this.answers.length === 0;
    byId("clear").disabled = this.answers.length === 0 && given.length === 0;
    byId("clear").textContent = this.answers.length === 0 && given.length > 0 ? "Bring back the answers given before" : "Forget all answers";
  }

  export() {
    const text = JSON.stringify(exported(this.page.tree, this.answers), null, 2);
    save("unsplit-review.json", new Blob([`${text}\n`], { type: "application/json" }));
  }

  key(event) {
    const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select");
    const { top, bottom } = byId("card").getBoundingClientRect();
    const unseen = this.pairs.length === 0 || bottom < 60 || top > innerHeight - 60;
    if (!byId("keys").checked || typing || unseen || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key in KEYS) this.give(KEYS[key]);
    else if (key === "u") this.undo();
    else return;
    event.preventDefault();
  }
}
