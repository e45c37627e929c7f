// The new clusters, their exemplars and features, and the list of merges.

const MOST_ROWS = 40;
const MOST_OLD = 40;

class Exemplars {
  constructor(page) {
    this.data = page.data.exemplars;
    if (this.data === null) return;
    const root = document.documentElement.style;
    // Not the data themselves: browsers drop a style that is megabytes long.
    const sheet = new Blob([unpack(this.data.png, Uint8Array)], { type: "image/png" });
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
    if (this.data !== null) this.all = this.sums(this.tree.order);
  }

  /** Sums over the observations of some leaves, feature by feature, and last their number. */
  sums(leaves) {
    const value = (leaf, f) => this.tree.sizes[leaf] * this.data.means[leaf][f];
    const sums = this.data.names.map((_, f) => leaves.reduce((sum, leaf) => sum + value(leaf, f), 0));
    return [...sums, sizeOf(this.tree, leaves)];
  }

  /** The features that differ most between two sums, with the means of both. */
  differing(here, there, most) {
    if (there.at(-1) === 0) return [];
    const means = (sums, f) => sums[f] / sums.at(-1);
    return this.data.names
      .map((name, f) => ({ name, f, sides: [means(here, f), means(there, f)] }))
      .map((one) => ({ ...one, by: (one.sides[0] - one.sides[1]) / (this.data.spread[one.f] || 1) }))
      .sort((one, other) => Math.abs(other.by) - Math.abs(one.by))
      .slice(0, most);
  }

  /** In words: which features of a group are higher or lower than elsewhere. */
  list(leaves, most) {
    const here = this.sums(leaves);
    return this.differing(here, this.all.map((sum, f) => sum - here[f]), most).flatMap(({ name, by }, i) => [
      i > 0 ? ", " : "",
      element("span", { class: "feature" }, element("bdi", null, short(name)), ` ${by >= 0 ? "+" : "−"}${Math.abs(by).toFixed(1)}`),
    ]);
  }

  /** Bars of both sides of a pair, back to back, as shares of the range over all clusters. */
  mirrored(pair) {
    if (this.data === null) return null;
    const [left, right] = ["left", "right"].map((side) => this.sums(this.tree.members[pair[side]]));
    const rows = this.differing(left, right, 5).map(({ name, f, sides }) => {
      const all = this.data.means.map((means) => means[f]);
      const [low, high] = [Math.min(...all), Math.max(...all)];
      const bars = sides.map((value, side) => element("td", { class: side === 0 ? "to-left" : "to-right" },
        element("span", { class: "mirrored", style: { width: `${3 + (97 * (value - low)) / (high - low || 1)}%`, background: colour(side) } }),
        element("span", { class: "mean" }, String(Number(value.toPrecision(3))))));
      return element("tr", null, bars[0], element("th", { scope: "row" }, element("bdi", null, short(name))), bars[1]);
    });
    return rows.length === 0 ? null : element("table", { class: "differing" },
      element("caption", null, "What differs most: means of both sides, from the lowest of all clusters to the highest."),
      element("tbody", null, ...rows));
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
    const { tree, cut, taken } = this.page;
    byId("clusters-title").textContent = `The ${counted(cut.count, "new cluster")}`;
    const groups = this.page.groups;
    const largest = Math.max(...groups.map((leaves) => sizeOf(tree, leaves)));
    const shown = this.all ? groups : groups.slice(0, MOST_ROWS);
    this.body.replaceChildren(...shown.map((leaves, number) => this.row(leaves, number, largest)));
    const button = byId("all-clusters");
    button.hidden = shown.length === groups.length;
    button.textContent = `Show all ${whole(groups.length)} clusters`;
    this.states.forEach((cell, step) => {
      cell.textContent = cut.made[step] ? "merged" : taken[step] ? "taken back by your answers" : "not merged";
    });
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
        element("span", { class: "chip", style: { background: hex, color: readableOn(hex) } }, short(this.page.names[number]))),
      element("td", { class: "number" }, whole(size),
        element("span", { class: "bar", "aria-hidden": "true" },
          element("span", { style: { width: `${(100 * size) / largest}%`, background: hex } }))),
      element("td", { class: "names" }, ...old),
      element("td", null, ...(exemplars.data ? [exemplars.of(leaves, 8)] : features.data ? features.list(leaves, 4) : [])));
  }

  drawOld() {
    if (!byId("old-new").open) return;
    const { tree, cut } = this.page;
    const rows = tree.names.flatMap((names, leaf) => names.map((name) => ({ name, leaf, single: names.length === 1 })));
    this.oldBody.replaceChildren(...rows.map(({ name, leaf, single }) => element("tr", null,
      element("th", { scope: "row", class: "names" }, element("bdi", null, name)),
      element("td", { class: "number" }, single ? whole(tree.sizes[leaf]) : ""),
      element("td", { class: "names" }, element("bdi", null, this.page.names[cut.group[leaf]])))));
  }
}
