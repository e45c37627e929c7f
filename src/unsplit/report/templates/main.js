// The page: reads the data, holds the cut, and redraws everything that follows from it.

class Page {
  constructor(data) {
    this.data = data;
    this.tree = data.tree;
    this.tree.members = membersOf(this.tree.merges, this.tree.names.length);
    this.tree.place = [];
    this.tree.order.forEach((leaf, place) => { this.tree.place[leaf] = place; });
    this.tree.firstStep = this.tree.n_initial - this.tree.names.length;
    this.count = null; // null is the cut of the result
    this.zoom = { start: 0, left: 0, end: this.tree.names.length };
    this.setTheme(remembered("unsplit-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
    this.exemplars = new Exemplars(this);
    this.features = new Features(this);
    this.given = data.review.given; // answers that the result obeys
    this.tree.obeyed = obeyedSteps(this.tree, this.given);
    this.base = constrainedCut(this.tree, this.tree.taken, this.given);
    this.homes = []; // colour of every cluster of the result, from top to bottom
    let next = 0;
    for (const leaf of this.tree.order) this.homes[this.base.group[leaf]] ??= next++;
    this.heads = this.members(this.base).map((leaves) => this.largest(leaves));
    this.recut(this.given);
    this.picture = new Picture(this);
    this.dendrogram = new Dendrogram(this);
    this.matrix = new Matrix(this);
    this.clusters = new Clusters(this);
    this.review = new Review(this);
    this.downloads = new Downloads(this);
    this.listen();
    this.update();
    this.drawAgreement();
    if (data.live) this.comeBack();
  }

  // A new result on a page that is served ------------------------------------------------------

  reload() {
    const place = { count: this.count, ...this.review.place() };
    try {
      sessionStorage.setItem("unsplit-place", JSON.stringify(place));
    } finally {
      location.reload();
    }
  }

  /** Back to the place where the page of the earlier result was. */
  comeBack() {
    try {
      const place = JSON.parse(sessionStorage.getItem("unsplit-place"));
      sessionStorage.removeItem("unsplit-place");
      if (place === null) return;
      if (place.count !== null) this.setCount(place.count);
      this.review.goTo(place);
    } catch {
      // This browser keeps nothing: the page begins at its start.
    }
  }

  // The cut ---------------------------------------------------------------------------------

  recut(answers) {
    this.taken = this.count === null ? this.tree.taken : cutAt(this.tree, this.count);
    this.plainCut = constrainedCut(this.tree, this.taken, this.given);
    this.cut = constrainedCut(this.tree, this.taken, answers);
    this.groups = this.members(this.cut);
    this.colours = this.dealtColours();
    this.names = newNames(this.tree, this.groups);
  }

  /** The leaves of every new cluster. */
  members(cut) {
    const groups = Array.from({ length: cut.count }, () => []);
    cut.group.forEach((number, leaf) => groups[number].push(leaf));
    return groups;
  }

  largest(leaves) {
    return leaves.reduce((best, leaf) => (this.tree.sizes[leaf] > this.tree.sizes[best] ? leaf : best));
  }

  /**
   * Colours follow the clusters of the result, so that they stay when the cut moves.  Others get
   * one of those that are used least: up to twelve clusters all have colours of their own.
   */
  dealtColours() {
    const used = new Array(N_COLOURS).fill(0);
    const number = (place) => { used[place % N_COLOURS] += 1; return place % N_COLOURS; };
    const homes = this.groups.map((leaves) => this.base.group[this.largest(leaves)]);
    const dealt = this.groups.map((leaves, i) => (leaves.includes(this.heads[homes[i]]) ? number(this.homes[homes[i]]) : null));
    return dealt.map((found, i) => {
      if (found !== null) return found;
      const start = this.homes[homes[i]] + 1 + this.tree.place[this.largest(this.groups[i])];
      const places = used.map((_, step) => (start + step) % N_COLOURS);
      return number(places.reduce((best, place) => (used[place] < used[best] ? place : best)));
    });
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
    byId("cut-note").textContent = [
      this.count === null ? "" : `The result has ${whole(this.tree.n_clusters)}.`,
      this.cut.count === shown ? "" : `Your answers make ${whole(this.cut.count)} of ${whole(shown)}.`,
    ].join(" ");
    for (const part of [this.picture, this.dendrogram, this.matrix, this.clusters, this.review]) part.draw();
  }

  /** Below the slider: how well every number of clusters agrees with the re-merges. */
  drawAgreement() {
    const { agreement, fewest, most } = this.tree;
    if (!agreement) return;
    const numbers = Array.from({ length: most - fewest + 1 }, (_, i) => fewest + i);
    const values = numbers.map((number) => agreement[number - 1]);
    const low = Math.min(...values);
    const y = (value) => 30 - (28 * (value - low)) / (Math.max(...values) - low || 1);
    const svg = byId("agreement");
    svg.setAttribute("viewBox", `0 0 ${Math.max(1, most - fewest)} 30`);
    svg.append(drawing("path", { d: `M0,30${values.map((value, i) => `L${i},${y(value)}`).join("")}V30Z` }));
    svg.hidden = false;
    svg.removeAttribute("hidden");
    const best = Math.max(...values);
    const good = numbers.filter((number) => agreement[number - 1] >= best - 0.02);
    byId("agreement-note").hidden = false;
    byId("agreement-note").textContent = "The curve below the slider shows how well each number of clusters agrees with the re-merges of "
      + `parts of the data (adjusted Rand index, at most ${plain(best)}). ${good.length === 1 ? `${good[0]} agrees best.` : `Cuts into ${runs(good)} agree about equally well.`}`;
  }

  setCount(count) {
    this.count = Math.min(this.tree.most, Math.max(this.tree.fewest, count));
    this.update();
  }

  /** Old clusters whose companions differ between two cuts. */
  movedBy(before, after) {
    const [old, now] = [before, after].map((cut) => this.members(cut).map((leaves) => leaves.join(",")));
    return this.tree.order.filter((leaf) => old[before.group[leaf]] !== now[after.group[leaf]]);
  }

  // What the pointer reads --------------------------------------------------------------------

  describeLeaf(leaf) {
    return `Cluster ${leafName(this.tree, leaf)}, ${counted(this.tree.sizes[leaf], "observation")}, `
      + `in new cluster ${isolated(this.names[this.cut.group[leaf]])}`;
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
    const step = tree.members.findIndex((leaves) => leaves.includes(a) && leaves.includes(b)) - tree.names.length;
    const together = this.cut.group[a] === this.cut.group[b] ? "in one new cluster" : "in different new clusters";
    return `${side(a)} and ${side(b)}. ${tvdAtLeast(tvd, low)}. `
      + `They are ${together}; the tree joins them at step ${tree.firstStep + step} (verdict: ${tree.merges[step].verdict}).`;
  }

  openPair(index) {
    if (index < 0) byId("readout").textContent = "These two are not among the pairs to review.";
    else this.review.open(index);
  }

  // Zoom ----------------------------------------------------------------------------------------

  zoomBy(factor, row, column) {
    const [n, size] = [this.tree.names.length, this.zoom.end - this.zoom.start];
    const rows = Math.min(n, Math.max(Math.min(4, n), size * factor));
    const from = (start, at) => at - ((at - start) * rows) / size;
    this.zoomTo(rows, from(this.zoom.start, row), from(this.zoom.left, column));
  }

  zoomTo(size, row, column) {
    const bounded = (value) => Math.min(this.tree.names.length - size, Math.max(0, value));
    const start = bounded(row);
    this.zoom = { start, left: bounded(column), end: start + size };
    this.drawTree();
  }

  bringIntoView([column, row]) {
    const size = this.zoom.end - this.zoom.start;
    const into = (start, at) => Math.min(at, Math.max(start, at + 1 - size));
    this.zoomTo(size, into(this.zoom.start, row), into(this.zoom.left, column));
  }

  zoomMiddle(factor) {
    const half = (this.zoom.end - this.zoom.start) / 2;
    const [column, row] = this.matrix.cursor ?? [this.zoom.left + half, this.zoom.start + half];
    this.zoomBy(factor, row, column);
  }

  zoomAll() {
    this.zoomTo(this.tree.names.length, 0, 0);
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
    cancelAnimationFrame(this.frame); // at most once per frame
    this.frame = requestAnimationFrame(() => { this.dendrogram.draw(); this.matrix.draw(); });
  }

  /** Wheel, drag and pinch on the tree and on the matrix. */
  movable(node) {
    const at = (event) => {
      const box = node.getBoundingClientRect();
      const size = this.zoom.end - this.zoom.start;
      const row = this.zoom.start + ((event.clientY - box.top) / box.height) * size;
      if (node !== this.matrix.canvas) return { row, column: row };
      const { left, width } = this.matrix.area;
      return { row, column: this.zoom.left + ((event.clientX - box.left - left) / width) * size };
    };
    node.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
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
        const { start, left, end } = this.zoom;
        this.zoomTo(end - start, start + before.row - now.row, left + before.column - now.column);
      }
      fingers.set(event.pointerId, event);
    });
  }

  // The rest --------------------------------------------------------------------------------------

  setTheme(name) {
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name === "dark" ? "Light" : "Dark";
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
    byId("theme").addEventListener("click", () => {
      this.setTheme(theme() === "dark" ? "light" : "dark");
      remember("unsplit-theme", theme());
      this.update();
    });
    addEventListener("resize", () => { this.picture.draw(); this.drawTree(); });
    this.movable(byId("dendrogram"));
    if (this.matrix.shown) this.movable(this.matrix.canvas);
  }
}

window.unsplitPage = new Page(JSON.parse(byId("data").textContent));
