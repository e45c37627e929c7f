// The dendrogram, drawn sideways so that its leaves are the rows of the matrix.

class Dendrogram {
  constructor(page) {
    this.page = page;
    this.svg = byId("dendrogram");
    const { tree } = page;
    const top = tree.merges.reduce((most, merge) => Math.max(most, merge.height), tree.base);
    const reach = top - tree.base || 1;
    this.x = (height) => 100 - (96 * (height - tree.base)) / reach;
    this.height = (x) => tree.base + ((100 - x) * reach) / 96;
    this.node = Array.from(tree.names, (_, leaf) => ({ x: 100, y: tree.place[leaf] + 0.5 }));
    for (const merge of tree.merges) {
      const y = (this.node[merge.left].y + this.node[merge.right].y) / 2;
      this.node.push({ x: this.x(merge.height), y });
    }
    this.paths = tree.merges.map((_, step) => drawing("path", { d: this.line(step) }));
    this.cutLine = drawing("line", { y1: -1, y2: tree.names.length + 1 });
    this.svg.append(...this.paths, this.cutLine);
    this.pointed = -1;
    const near = tree.base + 0.04 * reach;
    const [name, ...meaning] = tree.axis.split(": ");
    byId("axis").append(
      element("span", null, plain(top)),
      element("span", null, name, meaning.length === 0 ? null : element("span", { class: "wide" }, `: ${meaning.join(": ")}`)),
      element("span", null, plain(Math.max(near, 0))),
    );
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.read(-1));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    onPress(this.svg, () => this.press());
    this.draggable();
  }

  line(step) {
    const merge = this.page.tree.merges[step];
    const [left, right] = [this.node[merge.left], this.node[merge.right]];
    const { x } = this.node[this.page.tree.names.length + step];
    return `M${left.x},${left.y}H${x}V${right.y}H${right.x}`;
  }

  draw() {
    const { tree, cut, zoom } = this.page;
    this.svg.setAttribute("viewBox", `0 ${zoom.start} 101 ${zoom.end - zoom.start}`);
    this.paths.forEach((path, step) => {
      path.setAttribute("class", `${cut.made[step] ? "" : "undone"}${step === this.pointed ? " pointed" : ""}`);
      path.style.stroke = cut.made[step] ? this.page.colourOf(tree.members[tree.merges[step].left][0]) : "";
    });
    for (const end of ["x1", "x2"]) this.cutLine.setAttribute(end, this.cutPlace());
    this.svg.setAttribute("aria-label",
      `Dendrogram of ${counted(tree.names.length, "row")}, cut into ${counted(cut.count, "cluster")}. `
      + "Arrow keys read merge by merge.");
  }

  /** Half-way between the last merge of the cut and the next one. */
  cutPlace() {
    const { tree, taken } = this.page;
    const last = taken.lastIndexOf(true);
    if (last === tree.merges.length - 1) return 1;
    const height = (step) => tree.merges[step]?.height ?? tree.base;
    return this.x((height(last) + height(last + 1)) / 2);
  }

  /** The merge whose line is nearest to the pointer, within ten pixels. */
  point(event) {
    const box = this.svg.getBoundingClientRect();
    const { zoom, tree } = this.page;
    const [across, down] = [101 / box.width, (zoom.end - zoom.start) / box.height];
    const x = (event.clientX - box.left) * across;
    const y = zoom.start + (event.clientY - box.top) * down;
    const outside = (value, a, b) => Math.max(Math.min(a, b) - value, value - Math.max(a, b), 0);
    const away = (x1, y1, x2, y2) => Math.hypot(outside(x, x1, x2) / across, outside(y, y1, y2) / down);
    let [best, least] = [-1, 10];
    tree.merges.forEach((merge, step) => {
      const [left, right] = [this.node[merge.left], this.node[merge.right]];
      const own = this.node[tree.names.length + step];
      const distance = Math.min(away(own.x, left.y, own.x, right.y), away(own.x, left.y, left.x, left.y),
        away(own.x, right.y, right.x, right.y));
      if (distance < least) [best, least] = [step, distance];
    });
    this.read(best, event);
  }

  press() {
    const merge = this.page.tree.merges[this.pointed];
    if (merge) this.page.openPair(this.page.review.ofNodes(merge.left, merge.right));
  }

  /** The line of the cut can be dragged: as many merges are made as lie right of it. */
  draggable() {
    const { tree } = this.page;
    let drags = false;
    const at = (event) => {
      const box = this.svg.getBoundingClientRect();
      return { x: ((event.clientX - box.left) * 101) / box.width, pixel: 101 / box.width };
    };
    this.svg.addEventListener("pointerdown", (event) => {
      const { x, pixel } = at(event);
      drags = Math.abs(x - this.cutPlace()) < 7 * pixel;
      if (!drags) return;
      this.svg.setPointerCapture(event.pointerId);
      event.stopImmediatePropagation(); // the tree itself stays
    });
    this.svg.addEventListener("pointermove", (event) => {
      const { x, pixel } = at(event);
      this.svg.style.cursor = drags || Math.abs(x - this.cutPlace()) < 7 * pixel ? "ew-resize" : "";
      if (!drags) return;
      const height = this.height(x);
      this.page.setCount(tree.names.length - tree.merges.filter((merge) => merge.height <= height).length);
    });
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, () => { drags = false; });
  }

  read(step, event) {
    this.paths[this.pointed]?.classList.remove("pointed");
    this.paths[step]?.classList.add("pointed");
    this.pointed = step;
    if (step < 0) return hideTip();
    const text = this.page.describeMerge(step);
    byId("readout").textContent = text;
    return event ? showTip(text, event) : undefined;
  }

  key(event) {
    const last = this.paths.length - 1;
    const moves = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    if (event.key === "Enter") this.press();
    else if (event.key in moves && last >= 0) {
      this.read(Math.min(last, Math.max(0, this.pointed + moves[event.key])));
      event.preventDefault();
    } else this.page.zoomKey(event);
  }
}
