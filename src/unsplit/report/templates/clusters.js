// The new clusters, their exemplars and features, and the list of merges.

const MOST_ROWS = 40;
const MOST_OLD = 40;

class Exemplars {
  constructor(page) {
    this.data = page.data.exemplars;
    if (this.data === null) return;
    const root = document.documentElement.style;
    // Not the data themselves: browsers drop a style that is megabytes long.
    const [start, text] = this.data.src.split(",");
    const sheet = new Blob([unpack(text, Uint8Array)], { type: start.slice(5, start.indexOf(";")) });
    root.setProperty("--sheet", `url("${URL.createObjectURL(sheet)}")`);
    if (Math.max(this.data.width, this.data.height) < 40) root.setProperty("--pixels", "pixelated");
    let n = 0;
    this.numbers = this.data.counts.map((count) => Array.from({ length: count }, () => n++)); // of each leaf
    this.lines = Math.ceil(n / this.data.columns);
  }

  /** Exemplars of some leaves: one of each first, then the second of each, and so on. */
  of(leaves, most) {
    if (this.data === null) return null;
    const numbers = leaves.map((leaf) => this.numbers[leaf]);
    const rounds = Array.from({ length: most }, (_, round) => numbers.flatMap((of) => of.slice(round, round + 1)));
    const chosen = rounds.flat().slice(0, most);
    return element("div", { class: "tiles", role: "img", "aria-label": `${chosen.length} exemplars (${this.data.kind})` },
      ...chosen.map((number) => this.tile(number)));
  }

  tile(number) {
    const [column, line] = [number % this.data.columns, Math.floor(number / this.data.columns)];
    return element("span", {
      class: "tile",
      style: {
        "background-size": `${100 * this.data.columns}% ${100 * this.lines}%`,
        "background-position": `${(100 * column) / (this.data.columns - 1)}% ${(100 * line) / Math.max(this.lines - 1, 1)}%`,
      },
    });
  }
}

class Features {
  constructor(page) {
    this.data = page.data.features;
    this.tree = page.tree;
  }

  /** Means over the observations of some leaves, feature by feature. */
  means(leaves) {
    const n = sizeOf(this.tree, leaves);
    const share = (leaf, f) => (this.tree.sizes[leaf] * this.data.means[leaf][f]) / n;
    return this.data.names.map((_, f) => leaves.reduce((sum, leaf) => sum + share(leaf, f), 0));
  }

  /** In words: which features of a group are higher or lower than in others, or than elsewhere. */
  list(leaves, others, most) {
    const inside = new Set(leaves);
    const beside = others ?? this.tree.order.filter((leaf) => !inside.has(leaf));
    if (this.data === null || beside.length === 0) return [];
    const [here, there] = [this.means(leaves), this.means(beside)];
    return this.data.names
      .map((name, f) => ({ name, by: (here[f] - there[f]) / (this.data.spread[f] || 1) }))
      .sort((one, other) => Math.abs(other.by) - Math.abs(one.by))
      .slice(0, most)
      .flatMap(({ name, by }, i) => [
        i > 0 ? ", " : "",
        element("span", { class: "feature" }, element("bdi", null, short(name)), ` ${by >= 0 ? "+" : "−"}${Math.abs(by).toFixed(1)}`),
      ]);
  }
}

class Clusters {
  constructor(page) {
    this.page = page;
    this.all = false;
    const { exemplars, features } = page;
    const kind = exemplars.data && exemplars.data.kind !== "images" ? `: ${exemplars.data.kind}` : "";
    byId("shown-title").textContent = exemplars.data ? `exemplars${kind}` : features.data ? "what differs (standard deviations)" : "";
    byId("all-clusters").addEventListener("click", () => { this.all = true; this.draw(); });
    byId("old-new").addEventListener("toggle", () => this.drawOld());
    this.body = document.querySelector("#new-clusters tbody");
    this.oldBody = document.querySelector("#old-new tbody");
  }

  draw() {
    const { tree, cut } = this.page;
    byId("clusters-title").textContent = `The ${counted(cut.count, "new cluster")}`;
    const groups = this.page.groups;
    const largest = Math.max(...groups.map((leaves) => sizeOf(tree, leaves)));
    const shown = this.all ? groups : groups.slice(0, MOST_ROWS);
    this.body.replaceChildren(...shown.map((leaves, number) => this.row(leaves, number, largest)));
    const button = byId("all-clusters");
    button.hidden = shown.length === groups.length;
    button.textContent = `Show all ${whole(groups.length)} clusters`;
    this.drawOld();
  }

  row(leaves, number, largest) {
    const { tree, colours, exemplars, features } = this.page;
    const hex = colour(colours[number]);
    const size = sizeOf(tree, leaves);
    const old = leaves.slice(0, MOST_OLD).flatMap((leaf, i) => [
      i > 0 ? ", " : "", element("bdi", null, leafName(tree, leaf)), ` (${whole(tree.sizes[leaf])})`,
    ]);
    if (leaves.length > MOST_OLD) old.push(`, and ${leaves.length - MOST_OLD} more`);
    return element("tr", null,
      element("th", { scope: "row" },
        element("span", { class: "chip", style: { background: hex, color: readableOn(hex) } }, String(number))),
      element("td", { class: "number" }, whole(size),
        element("span", { class: "bar", "aria-hidden": "true" },
          element("span", { style: { width: `${(100 * size) / largest}%`, background: hex } }))),
      element("td", { class: "names" }, ...old),
      element("td", null, ...(exemplars.data ? [exemplars.of(leaves, 8)] : features.data ? features.list(leaves, null, 4) : [])));
  }

  drawOld() {
    if (!byId("old-new").open) return;
    const { tree, cut } = this.page;
    const rows = tree.names.flatMap((names, leaf) => names.map((name) => ({ name, leaf, single: names.length === 1 })));
    this.oldBody.replaceChildren(...rows.map(({ name, leaf, single }) => element("tr", null,
      element("th", { scope: "row", class: "names" }, element("bdi", null, name)),
      element("td", { class: "number" }, single ? whole(tree.sizes[leaf]) : ""),
      element("td", { class: "number" }, String(cut.group[leaf])))));
  }
}

class MergeList {
  constructor(page) {
    this.page = page;
    const { tree } = page;
    this.states = tree.merges.map(() => element("td", null));
    document.querySelector("#merge-list tbody").append(...tree.merges.map((merge, step) => element("tr", null,
      element("th", { scope: "row", class: "number" }, String(tree.firstStep + step)),
      element("td", { class: "names" }, `${nodeName(tree, merge.left)} and ${nodeName(tree, merge.right)}`),
      element("td", null, merge.verdict),
      element("td", { class: "number" }, merge.tvd === null ? "" : plain(merge.tvd)),
      this.states[step],
      element("td", null, merge.why))));
  }

  draw() {
    const { cut, taken } = this.page;
    this.states.forEach((cell, step) => {
      cell.textContent = cut.made[step] ? "merged" : taken[step] ? "taken back by your answers" : "not merged";
    });
  }
}
