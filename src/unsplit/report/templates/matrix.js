// All distances, in the order of the tree.

class Matrix {
  constructor(page) {
    this.page = page;
    this.canvas = byId("matrix");
    const data = page.data.matrix;
    this.shown = data !== null;
    byId("matrix-figure").hidden = !this.shown;
    byId("tree-and-matrix").classList.toggle("alone", !this.shown);
    if (!this.shown) return;
    this.tvd = unpack(data.tvd, Uint16Array);
    this.low = data.low === null ? null : unpack(data.low, Uint16Array);
    this.lowest = data.lowest;
    this.cursor = null;
    this.images = {}; // by theme
    this.bar = element("span", { class: "bar", role: "img", "aria-label": "colour scale" });
    byId("scale").append("TVD", element("span", null, `${this.lowest.toFixed(1)} alike`), this.bar,
      element("span", null, "1.0 apart"));
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.mark(null); hideTip(); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    onPress(this.canvas, (event) => this.press(this.at(event)));
  }

  value(from, a, b) {
    if (a === b) return 0;
    const found = from[pairIndex(a, b, this.page.tree.names.length)];
    return found === UNKNOWN ? null : found / (UNKNOWN - 1);
  }

  /** One pixel per pair, painted once for each theme; zooming only scales it. */
  get image() {
    this.images[theme()] ??= this.painted();
    return this.images[theme()];
  }

  painted() {
    const { order } = this.page.tree;
    const n = order.length;
    const canvas = element("canvas", { width: n, height: n });
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(n, n);
    const colours = Array.from({ length: 257 }, (_, i) => [...shade(i / 256), 255]);
    const scale = 256 / ((1 - this.lowest) * (UNKNOWN - 1) || 1);
    const start = this.lowest * (UNKNOWN - 1);
    for (let row = 0; row < n; row += 1) {
      for (let column = 0; column < n; column += 1) {
        const tvd = row === column ? 0 : this.tvd[pairIndex(order[row], order[column], n)];
        const shown = colours[Math.min(256, Math.max(0, Math.round((tvd - start) * scale)))];
        pixels.data.set(shown, 4 * (row * n + column));
      }
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  draw() {
    if (!this.shown) return;
    const { context, width, height } = sharp(this.canvas);
    const { zoom, tree } = this.page;
    const rows = zoom.end - zoom.start;
    // Names stand left of the matrix if rows are high enough to read them.
    const longest = () => Math.max(...tree.order.map((leaf) => Array.from(leafName(tree, leaf)).length - 2));
    const left = height / rows < 11 ? 6 : Math.min(150, 12 + 6.5 * longest());
    this.bar.style.background = `linear-gradient(to right, ${SCALES[theme()].map((rgb) => `rgb(${rgb})`)})`;
    this.area = { left, width: width - left, height };
    context.imageSmoothingEnabled = rows > height;
    context.drawImage(this.image, zoom.left, zoom.start, rows, rows, left, 0, width - left, height);
    this.names(context, left, height / rows);
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, height);
    context.clip();
    context.lineWidth = tree.order.length > 120 ? 1 : 1.6;
    context.strokeStyle = variable("--frame");
    for (const [start, length] of this.runs()) context.strokeRect(...this.square(start, start, length));
    if (this.cursor) {
      context.strokeStyle = "#ff3b30";
      context.lineWidth = 2;
      context.strokeRect(...this.square(...this.cursor, 1));
    }
    context.restore();
    this.canvas.setAttribute("aria-label",
      `Distances between ${counted(tree.names.length, "row")}. Arrow keys move from pair to pair.`);
  }

  names(context, left, row) {
    if (row < 11) return;
    const { zoom, tree } = this.page;
    context.font = `${Math.min(13, row * 0.75)}px system-ui, sans-serif`;
    context.fillStyle = variable("--ink");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let place = Math.floor(zoom.start); place < Math.min(zoom.end, tree.order.length); place += 1) {
      const y = (place + 0.5 - zoom.start) * row;
      if (y >= 0) context.fillText(leafName(tree, tree.order[place]), left - 5, y, left - 7);
    }
  }

  /** First row and length of every run of neighbouring rows that are one new cluster. */
  runs() {
    const { tree, cut } = this.page;
    const runs = [];
    tree.order.forEach((leaf, place) => {
      if (place > 0 && cut.group[leaf] === cut.group[tree.order[place - 1]]) runs.at(-1)[1] += 1;
      else runs.push([place, 1]);
    });
    return runs.filter(([, length]) => length > 1);
  }

  /** Where the square of some pairs is drawn: x, y, width and height. */
  square(column, row, length) {
    const { zoom } = this.page;
    const { left, width, height } = this.area;
    const [across, down] = [width, height].map((side) => side / (zoom.end - zoom.start));
    return [left + (column - zoom.left) * across, (row - zoom.start) * down, length * across, length * down];
  }

  mark(cursor) {
    this.cursor = cursor;
    this.page.drawTree();
  }

  at(event) {
    const { zoom, tree } = this.page;
    const { left, width, height } = this.area;
    const place = (start, share) => Math.floor(start + share * (zoom.end - zoom.start));
    const [column, row] = [place(zoom.left, (event.offsetX - left) / width), place(zoom.start, event.offsetY / height)];
    const inside = (value) => value >= 0 && value < tree.order.length;
    return event.offsetX >= left && inside(column) && inside(row) ? [column, row] : null;
  }

  point(event) {
    const cursor = this.at(event);
    this.mark(cursor);
    if (!cursor) return hideTip();
    this.read(cursor);
    return showTip(byId("readout").textContent, event);
  }

  press(cursor) {
    if (!cursor) return;
    const { order } = this.page.tree;
    this.page.openPair(this.page.review.between(order[cursor[1]], order[cursor[0]]));
  }

  read([column, row]) {
    const { order } = this.page.tree;
    byId("readout").textContent = this.page.describePair(order[row], order[column], this);
  }

  key(event) {
    const moves = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] };
    if (event.key === "Enter") return this.press(this.cursor);
    if (!(event.key in moves)) return this.page.zoomKey(event);
    const { zoom, tree } = this.page;
    const start = this.cursor ?? [Math.floor(zoom.left), Math.floor(zoom.start)];
    const bounded = (value) => Math.min(tree.order.length - 1, Math.max(0, value));
    const cursor = this.cursor ? start.map((value, axis) => bounded(value + moves[event.key][axis])) : start;
    event.preventDefault();
    this.page.bringIntoView(cursor);
    this.mark(cursor);
    return this.read(cursor);
  }
}
