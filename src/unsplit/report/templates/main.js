// The page: reads the data, holds the cut, and redraws everything that follows from it.

class Page {
  constructor(data) {
    this.data = data;
    this.tree = this.prepared(data.tree);
    this.count = null; // null is the cut of the result
    this.zoom = this.whole();
    this.waiting = new Set();
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.exemplars = new Exemplars(this);
    this.features = new Features(this);
    this.given = data.review.given; // answers that the result obeys
    this.tree.obeyed = obeyedSteps(this.tree, this.given);
    this.base = constrainedCut(this.tree, this.tree.taken, this.given);
    this.recut(this.given);
    this.picture = new Picture(this);
    this.dendrogram = new Dendrogram(this);
    this.matrix = new Matrix(this);
    this.clusters = new Clusters(this);
    this.mergeList = new MergeList(this);
    this.review = new Review(this);
    this.downloads = new Downloads(this);
    this.listen();
    this.update();
  }

  prepared(tree) {
    const leaves = tree.names.length;
    tree.members = membersOf(tree.merges, leaves);
    tree.parent = parentsOf(tree.merges, leaves);
    tree.place = [];
    tree.order.forEach((leaf, place) => { tree.place[leaf] = place; });
    tree.firstStep = tree.n_initial - leaves;
    return tree;
  }

  // The cut ---------------------------------------------------------------------------------

  recut(answers) {
    this.taken = this.count === null ? this.tree.taken : cutAt(this.tree, this.count);
    this.plainCut = constrainedCut(this.tree, this.taken, this.given);
    const unchanged = answers.length === this.given.length && answers.every((one, i) => one === this.given[i]);
    this.cut = unchanged ? this.plainCut : constrainedCut(this.tree, this.taken, answers);
    this.groups = Array.from({ length: this.cut.count }, () => []);
    this.cut.group.forEach((number, leaf) => this.groups[number].push(leaf));
    this.colours = this.groups.map((leaves) => this.colourNumber(leaves));
  }

  /** Colours follow the clusters of the result, so that they stay when the cut moves. */
  colourNumber(leaves) {
    const largest = leaves.reduce((best, leaf) => (this.tree.sizes[leaf] > this.tree.sizes[best] ? leaf : best), leaves[0]);
    const home = this.base.group[largest];
    if (this.homes === undefined) {
      this.homes = [];
      let next = 0;
      for (const leaf of this.tree.order) this.homes[this.base.group[leaf]] ??= next++;
      this.heads = [];
      this.base.group.forEach((group, leaf) => {
        const best = this.heads[group];
        if (best === undefined || this.tree.sizes[leaf] > this.tree.sizes[best]) this.heads[group] = leaf;
      });
    }
    return leaves.includes(this.heads[home]) ? this.homes[home] : this.homes[home] + 1 + this.tree.place[largest];
  }

  colourOf(leaf) {
    return colour(this.colours[this.cut.group[leaf]]);
  }

  update() {
    this.recut(this.review.answers);
    const slider = byId("slider");
    const shown = this.count ?? Math.min(this.plainCut.count, this.tree.most);
    slider.value = shown;
    slider.setAttribute("aria-valuetext", counted(this.cut.count, "cluster"));
    byId("count").textContent = whole(this.cut.count);
    byId("fewer").disabled = shown <= this.tree.fewest;
    byId("more").disabled = shown >= this.tree.most;
    byId("reset").hidden = this.count === null;
    byId("cut-note").textContent = this.note(shown);
    byId("status").textContent = `${counted(this.cut.count, "cluster")}.`;
    for (const part of [this.picture, this.dendrogram, this.matrix, this.clusters, this.mergeList, this.review]) part.draw();
  }

  note(shown) {
    const parts = [];
    if (this.count !== null) parts.push(`The result has ${whole(this.tree.n_clusters)}.`);
    if (this.cut.count !== shown) parts.push(`Your answers make ${whole(this.cut.count)} of ${whole(shown)}.`);
    return parts.join(" ");
  }

  setCount(count) {
    this.count = Math.min(this.tree.most, Math.max(this.tree.fewest, count));
    this.update();
  }

  /** Old clusters whose companions differ between two cuts. */
  movedBy(before, after) {
    const inside = (cut) => {
      const sets = Array.from({ length: cut.count }, () => []);
      cut.group.forEach((number, leaf) => sets[number].push(leaf));
      return sets.map((leaves) => leaves.join(","));
    };
    const [old, now] = [inside(before), inside(after)];
    return this.tree.order.filter((leaf) => old[before.group[leaf]] !== now[after.group[leaf]]);
  }

  // What the pointer reads --------------------------------------------------------------------

  describeLeaf(leaf) {
    return `Cluster ${leafName(this.tree, leaf)}, ${counted(this.tree.sizes[leaf], "observation")}, `
      + `in new cluster ${this.cut.group[leaf]}`;
  }

  describeMerge(step) {
    const { tree } = this;
    const merge = tree.merges[step];
    const side = (node) => `${nodeName(tree, node)} (${counted(sizeOf(tree, tree.members[node]), "observation")})`;
    const made = this.cut.made[step] ? "merged" : "not merged at this cut";
    return `Step ${tree.firstStep + step}: ${side(merge.left)} and ${side(merge.right)}. `
      + `${evidenceOf(merge).join("; ")}. Verdict: ${merge.verdict}; ${made}. ${merge.why}.`;
  }

  describePair(a, b, matrix) {
    const { tree } = this;
    if (a === b) return `${this.describeLeaf(a)}.`;
    const side = (leaf) => `${leafName(tree, leaf)} (${counted(tree.sizes[leaf], "observation")})`;
    const tvd = matrix.value(matrix.tvd, a, b);
    const low = matrix.low === null ? null : matrix.value(matrix.low, a, b);
    const step = joinedAt(tree, a, b);
    const together = this.cut.group[a] === this.cut.group[b] ? "in one new cluster" : "in different new clusters";
    return `${side(a)} and ${side(b)}. ${tvdAtLeast(tvd, low)}. `
      + `They are ${together}; the tree joins them at step ${tree.firstStep + step} (verdict: ${tree.merges[step].verdict}).`;
  }

  // Zoom ----------------------------------------------------------------------------------------

  whole() {
    return { start: 0, left: 0, end: this.tree.names.length };
  }

  zoomBy(factor, row, column) {
    const n = this.tree.names.length;
    const rows = Math.min(n, Math.max(Math.min(4, n), (this.zoom.end - this.zoom.start) * factor));
    const change = rows / (this.zoom.end - this.zoom.start);
    const from = (start, at) => Math.min(n - rows, Math.max(0, at - (at - start) * change));
    const start = from(this.zoom.start, row);
    this.zoom = { start, left: from(this.zoom.left, column), end: start + rows };
    this.drawTree();
  }

  moveBy(rows, columns) {
    const n = this.tree.names.length;
    const size = this.zoom.end - this.zoom.start;
    const bounded = (value) => Math.min(n - size, Math.max(0, value));
    const start = bounded(this.zoom.start + rows);
    this.zoom = { start, left: bounded(this.zoom.left + columns), end: start + size };
    this.drawTree();
  }

  bringIntoView([column, row]) {
    const size = this.zoom.end - this.zoom.start;
    const by = (start, at) => (at < start ? at - start : at + 1 > start + size ? at + 1 - start - size : 0);
    const [rows, columns] = [by(this.zoom.start, row), by(this.zoom.left, column)];
    if (rows !== 0 || columns !== 0) this.moveBy(rows, columns);
  }

  zoomMiddle(factor) {
    const half = (this.zoom.end - this.zoom.start) / 2;
    const [column, row] = this.matrix.cursor ?? [this.zoom.left + half, this.zoom.start + half];
    this.zoomBy(factor, row, column);
  }

  zoomAll() {
    this.zoom = this.whole();
    this.drawTree();
  }

  zoomKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") this.zoomMiddle(0.6);
    else if (event.key === "-") this.zoomMiddle(1 / 0.6);
    else if (event.key === "0") this.zoomAll();
    else return;
    event.preventDefault();
  }

  drawTree() {
    this.later(() => { this.dendrogram.draw(); this.matrix.draw(); });
  }

  later(draw) {
    if (this.waiting.size === 0) {
      requestAnimationFrame(() => {
        const all = [...this.waiting];
        this.waiting.clear();
        for (const one of all) one();
      });
    }
    this.waiting.add(draw);
  }

  /** Wheel, drag and pinch on the tree and on the matrix. */
  movable(node) {
    const at = (event) => {
      const box = node.getBoundingClientRect();
      const size = this.zoom.end - this.zoom.start;
      const row = this.zoom.start + ((event.clientY - box.top) / box.height) * size;
      const { left, width } = node === this.matrix.canvas ? this.matrix.area : { left: 0, width: 0 };
      const column = width ? this.zoom.left + ((event.clientX - box.left - left) / width) * size : row;
      return { row, column };
    };
    node.addEventListener("wheel", (event) => {
      const { row, column } = at(event);
      this.zoomBy(Math.exp(Math.min(Math.max(event.deltaY, -100), 100) / 250), row, column);
      event.preventDefault();
    }, { passive: false });
    const fingers = new Map();
    node.addEventListener("pointerdown", (event) => fingers.set(event.pointerId, event));
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) node.addEventListener(end, (event) => fingers.delete(event.pointerId));
    node.addEventListener("pointermove", (event) => {
      const last = fingers.get(event.pointerId);
      if (!last) return;
      const others = [...fingers.values()].filter((one) => one.pointerId !== event.pointerId);
      if (others.length === 1) {
        const reach = (one) => Math.hypot(one.clientX - others[0].clientX, one.clientY - others[0].clientY) || 1;
        const { row, column } = at(others[0]);
        this.zoomBy(reach(last) / reach(event), row, column);
      } else {
        const [before, now] = [at(last), at(event)];
        this.moveBy(before.row - now.row, node === this.matrix.canvas ? before.column - now.column : before.row - now.row);
      }
      fingers.set(event.pointerId, event);
    });
  }

  // The rest --------------------------------------------------------------------------------------

  setTheme(name) {
    document.documentElement.dataset.theme = name;
    const button = byId("theme");
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(name === "dark"));
    button.setAttribute("aria-label", name === "dark" ? "Light colours" : "Dark colours");
  }

  listen() {
    const slider = byId("slider");
    slider.min = this.tree.fewest;
    slider.max = this.tree.most;
    slider.addEventListener("input", () => this.setCount(Number(slider.value)));
    byId("fewer").addEventListener("click", () => this.setCount(Number(slider.value) - 1));
    byId("more").addEventListener("click", () => this.setCount(Number(slider.value) + 1));
    byId("reset").addEventListener("click", () => { this.count = null; this.update(); });
    byId("zoom-in").addEventListener("click", () => this.zoomMiddle(0.6));
    byId("zoom-out").addEventListener("click", () => this.zoomMiddle(1 / 0.6));
    byId("zoom-all").addEventListener("click", () => this.zoomAll());
    byId("theme").addEventListener("click", () => { this.setTheme(theme() === "dark" ? "light" : "dark"); this.update(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => { this.setTheme(event.matches ? "dark" : "light"); this.update(); });
    window.addEventListener("resize", () => this.later(() => { this.picture.draw(); this.dendrogram.draw(); this.matrix.draw(); }));
    this.movable(byId("dendrogram"));
    if (this.matrix.shown) this.movable(this.matrix.canvas);
  }
}

window.unsplitPage = new Page(JSON.parse(byId("data").textContent));
