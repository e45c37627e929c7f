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
    const drawn = this.x.length < data.n_observations ? `${whole(this.x.length)} of ` : "";
    byId("picture-note").textContent =
      `Each point is an observation (${drawn}${whole(data.n_observations)}). Positions: ${data.method}. Point at one to read its clusters.`;
    for (const id of ["before", "after"]) {
      const canvas = byId(id);
      onPress(canvas, (event) => this.press(canvas, event));
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

  /** Two sets of leaves in two colours before all others; ``side`` has the number of each leaf. */
  paintSides(canvas, side) {
    const { context, width, height } = sharp(canvas);
    const place = this.places(width, height);
    for (const [now, fill, radius] of [[undefined, variable("--undone"), 1], [0, colour(0), 2], [1, colour(1), 2]]) {
      context.fillStyle = fill;
      this.leaf.forEach((leaf, i) => {
        if (side.get(leaf) === now) context.fillRect(place.x(i) - radius, place.y(i) - radius, 2 * radius, 2 * radius);
      });
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
   * The names of the new clusters: the largest first, each at the point of its cluster that is
   * nearest to the middle, or beside it.  One that would cover another is left out.
   */
  numbers(width, height, group) {
    const clusters = this.middles(width, height, group);
    const many = clusters.length > 25; // many are small, and a name would hide them
    const size = many || width < 300 ? 11 : 14;
    const placed = [];
    const free = (box) => placed.every((one) => 2 * Math.abs(one.x - box.x) >= one.wide + box.wide || 2 * Math.abs(one.y - box.y) >= one.high + box.high);
    for (const { number, x, y } of clusters) {
      const name = this.page.names[number];
      const text = name.length > 9 && name.includes(" + ") ? `${short(name.split(" + ")[0], 8)} + …` : short(name, 12);
      const [wide, high] = [0.62 * size * text.length + 5, size + 3];
      const inside = (at, half, most) => Math.min(most - half, Math.max(half, at));
      // Among many small clusters on a phone, a name beside its own would seem to be another's.
      const beside = many && width < 300 ? [] : [[0, -high], [0, high], [-wide, 0], [wide, 0]];
      const found = [[0, many ? -10 : 0], ...beside]
        .map(([right, down]) => ({ text, x: inside(x + right, wide / 2, width), y: inside(y + down, high / 2, height), wide, high }))
        .find(free);
      if (found !== undefined) placed.push(found);
    }
    return { numbers: placed, size };
  }

  /** Where each new cluster is, the largest first. */
  middles(width, height, group) {
    const place = this.places(width, height);
    const groups = this.page.groups.map(() => []);
    this.leaf.forEach((leaf, i) => groups[group[leaf]].push(i));
    const mean = (points, at) => points.reduce((sum, i) => sum + at(i), 0) / points.length;
    return groups.flatMap((points, number) => {
      if (points.length === 0) return [];
      const [x, y] = [mean(points, place.x), mean(points, place.y)];
      const away = (i) => (place.x(i) - x) ** 2 + (place.y(i) - y) ** 2;
      const nearest = points.reduce((best, i) => (away(i) < away(best) ? i : best));
      return { number, n: points.length, x: place.x(nearest), y: place.y(nearest) };
    }).sort((one, other) => other.n - one.n);
  }

  /** The leaf of the point nearest to the pointer, within twelve pixels; undefined if none is. */
  leafAt(canvas, event) {
    const place = this.places(canvas.clientWidth, canvas.clientHeight);
    let [best, least] = [-1, 144];
    for (let i = 0; i < this.x.length; i += 1) {
      const away = (place.x(i) - event.offsetX) ** 2 + (place.y(i) - event.offsetY) ** 2;
      if (away < least) [best, least] = [i, away];
    }
    return this.leaf[best];
  }

  point(canvas, event) {
    const leaf = this.leafAt(canvas, event);
    if (leaf === undefined) hideTip();
    else showTip(this.page.describeLeaf(leaf), event);
  }

  press(canvas, event) {
    const leaf = this.leafAt(canvas, event);
    if (leaf !== undefined) this.page.openPair(this.page.review.of(leaf));
  }
}
