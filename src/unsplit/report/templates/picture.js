// Two pictures of the data: coloured by the old clusters and by the new ones.

class Picture {
  constructor(page) {
    this.page = page;
    const data = page.data.picture;
    this.shown = data !== null;
    byId("pictures").hidden = !this.shown;
    if (!this.shown) {
      byId("picture-note").textContent = "There is no picture of the data: the page was made without them.";
      return;
    }
    this.x = unpack(data.x, Uint16Array);
    this.y = unpack(data.y, Uint16Array);
    this.leaf = unpack(data.leaf, Uint16Array);
    const drawn = data.n_drawn < data.n_observations ? `${whole(data.n_drawn)} of ` : "";
    byId("picture-note").textContent =
      `Each point is an observation (${drawn}${whole(data.n_observations)}). Positions: ${data.method}. Point at one to read its clusters.`;
    for (const id of ["before", "after"]) {
      const canvas = byId(id);
      canvas.addEventListener("pointermove", (event) => this.point(canvas, event));
      canvas.addEventListener("pointerleave", hideTip);
    }
  }

  /** Positions in a box, with a margin. */
  places(width, height) {
    const [across, up] = [(width - 28) / (UNKNOWN - 1), (height - 28) / (UNKNOWN - 1)];
    return { x: (i) => 14 + this.x[i] * across, y: (i) => height - 14 - this.y[i] * up };
  }

  draw() {
    if (!this.shown) return;
    const { tree, cut } = this.page;
    byId("before-title").textContent = `Before: ${counted(tree.n_initial, "cluster")}`;
    byId("after-title").textContent = `After: ${counted(cut.count, "cluster")}`;
    this.paint(byId("before"), (leaf) => tree.place[leaf], null);
    this.paint(byId("after"), (leaf) => this.page.colours[cut.group[leaf]], cut.group);
  }

  paint(canvas, colourOf, group) {
    const { context, width, height } = sharp(canvas);
    this.points(width, height, colourOf, (x, y, radius, fill) => {
      context.fillStyle = fill;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
    });
    if (group === null) return;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const { numbers, size } = this.numbers(width, height, group);
    context.font = `bold ${size}px system-ui, sans-serif`;
    context.lineJoin = "round";
    context.strokeStyle = variable("--card");
    context.lineWidth = 4;
    context.fillStyle = variable("--ink");
    for (const { text, x, y } of numbers) {
      context.strokeText(text, x, y);
      context.fillText(text, x, y);
    }
  }

  points(width, height, colourOf, dot) {
    const place = this.places(width, height);
    const radius = Math.min(4, Math.max(1, (0.16 * width) / Math.sqrt(this.x.length)));
    for (let i = 0; i < this.x.length; i += 1) {
      dot(place.x(i), place.y(i), radius, colour(colourOf(this.leaf[i])));
    }
  }

  /**
   * The numbers of the new clusters: the largest first, each at the point of its cluster that is
   * nearest to the middle, or beside it.  One that would cover another is left out.
   */
  numbers(width, height, group) {
    const clusters = this.middles(width, height, group);
    const many = clusters.length > 25; // many are small, and a number would hide them
    const size = many || width < 300 ? 11 : 14;
    const placed = [];
    const free = (box) => placed.every((one) => 2 * Math.abs(one.x - box.x) >= one.wide + box.wide || 2 * Math.abs(one.y - box.y) >= one.high + box.high);
    for (const { number, x, y } of clusters) {
      const text = String(number);
      const [wide, high] = [0.62 * size * text.length + 5, size + 3];
      const inside = (at, half, most) => Math.min(most - half, Math.max(half, at));
      const found = [[0, many ? -10 : 0], [0, -high], [0, high], [-wide, 0], [wide, 0]]
        .map(([right, down]) => ({ text, x: inside(x + right, wide / 2, width), y: inside(y + down, high / 2, height), wide, high }))
        .find(free);
      if (found !== undefined) placed.push(found);
    }
    return { numbers: placed, size };
  }

  /** Where each new cluster is, the largest first. */
  middles(width, height, group) {
    const place = this.places(width, height);
    const sums = new Map();
    for (let i = 0; i < this.x.length; i += 1) {
      const entry = sums.get(group[this.leaf[i]]) ?? { x: 0, y: 0, points: [] };
      entry.x += place.x(i);
      entry.y += place.y(i);
      entry.points.push(i);
      sums.set(group[this.leaf[i]], entry);
    }
    return Array.from(sums, ([number, { x, y, points }]) => {
      const n = points.length;
      const away = (i) => (place.x(i) - x / n) ** 2 + (place.y(i) - y / n) ** 2;
      const nearest = points.reduce((best, i) => (away(i) < away(best) ? i : best), points[0]);
      return { number, n, x: place.x(nearest), y: place.y(nearest) };
    }).sort((one, other) => other.n - one.n || one.number - other.number);
  }

  point(canvas, event) {
    const place = this.places(canvas.clientWidth, canvas.clientHeight);
    let [best, least] = [-1, 144];
    for (let i = 0; i < this.x.length; i += 1) {
      const away = (place.x(i) - event.offsetX) ** 2 + (place.y(i) - event.offsetY) ** 2;
      if (away < least) [best, least] = [i, away];
    }
    if (best < 0) hideTip();
    else showTip(this.page.describeLeaf(this.leaf[best]), event);
  }
}
