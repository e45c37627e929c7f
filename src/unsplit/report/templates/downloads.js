// Labels as CSV, and figures as SVG and PNG.

const [FIGURE_WIDTH, FIGURE_HEIGHT] = [900, 700];
// Room for the title, and for an axis or a note.
const [TOP, BOTTOM] = [44, 46];

function save(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const quoted = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
const csv = (rows) => `${rows.map((row) => row.map((value) => quoted(String(value))).join(",")).join("\n")}\n`;

class Downloads {
  constructor(page) {
    this.page = page;
    const figures = { picture: page.picture.shown, tree: true, distances: page.matrix.shown };
    for (const button of document.querySelectorAll("[data-download]")) {
      const name = button.dataset.download;
      button.disabled = figures[name.split(".")[0]] === false;
      button.addEventListener("click", () => this.download(name));
    }
    if (page.data.labels === null) {
      byId("labels-note").textContent = "The page does not have every row of the data, so the CSV has one line per old cluster.";
    }
  }

  download(name) {
    if (name === "labels") return save("labels.csv", new Blob([this.labels()], { type: "text/csv" }));
    const [figure, format] = name.split(".");
    const text = new XMLSerializer().serializeToString(this.figure(figure));
    if (format === "svg") return save(name, new Blob([text], { type: "image/svg+xml" }));
    return this.png(text, name);
  }

  labels() {
    const { tree, cut, data } = this.page;
    const group = (leaf) => this.page.names[cut.group[leaf]];
    if (data.labels === null) {
      return csv([["old", "new"], ...tree.names.flatMap((names, leaf) => names.map((name) => [name, group(leaf)]))]);
    }
    const { ids, leaf } = data.labels;
    const initial = unpack(data.labels.cluster, Int32Array);
    const left = tree.names.map((names) => [...names]);
    const name = leaf.map((one) => left[one].shift());
    const rows = Array.from(initial, (cluster, row) => [
      ids === null ? row : ids[row], cluster < 0 ? "-1" : name[cluster], cluster < 0 ? "-1" : group(leaf[cluster]),
    ]);
    return csv([["id", "old", "new"], ...rows]);
  }

  /** A figure for a paper: title, drawing, axis or colour scale, names. */
  figure(name) {
    const { tree, cut } = this.page;
    const root = drawing("svg", { xmlns: SVG, width: FIGURE_WIDTH, height: FIGURE_HEIGHT, viewBox: `0 0 ${FIGURE_WIDTH} ${FIGURE_HEIGHT}`,
      "font-family": "sans-serif", "font-size": 13, fill: variable("--ink") });
    root.append(drawing("rect", { width: "100%", height: "100%", fill: variable("--paper") }));
    const titles = {
      picture: `${counted(tree.n_initial, "cluster")} merged into ${whole(cut.count)}`,
      tree: `Tree of ${counted(tree.n_initial, "cluster")}, cut into ${whole(cut.count)}`,
      distances: `Total variation distances of ${counted(tree.n_initial, "cluster")}`,
    };
    root.append(this.text(FIGURE_WIDTH / 2, 24, titles[name], { "text-anchor": "middle", "font-size": 17, "font-weight": "bold" }));
    root.append(...this[name]());
    return root;
  }

  text(x, y, words, look) {
    return drawing("text", { x, y, "dominant-baseline": "middle", ...look }, words);
  }

  picture() {
    const { picture, colours, cut, data } = this.page;
    const height = FIGURE_HEIGHT - TOP - BOTTOM;
    const parts = [];
    picture.points(FIGURE_WIDTH, height, (leaf) => colours[cut.group[leaf]], (x, y, r, fill) => {
      parts.push(drawing("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: r.toFixed(1), fill }));
    });
    const { numbers, size } = picture.numbers(FIGURE_WIDTH, height, cut.group);
    for (const { text, x, y } of numbers) {
      parts.push(drawing("text", { x, y, "font-size": size, "dominant-baseline": "central", "text-anchor": "middle", stroke: variable("--paper"),
        "stroke-width": 4, "paint-order": "stroke", "font-weight": "bold" }, text));
    }
    const note = `Positions: ${data.picture.method}; names are those of the new clusters`;
    return [drawing("g", { transform: `translate(0 ${TOP})` }, ...parts),
      this.text(FIGURE_WIDTH / 2, FIGURE_HEIGHT - BOTTOM / 2, note, { "text-anchor": "middle" })];
  }

  tree() {
    const { dendrogram, tree, cut } = this.page;
    const [rows, room] = [tree.names.length, 170];
    const height = FIGURE_HEIGHT - TOP - BOTTOM;
    const [across, down] = [(FIGURE_WIDTH - room) / 101, height / rows];
    const parts = tree.merges.map((_, step) => drawing("path", {
      d: dendrogram.line(step), fill: "none", "vector-effect": "non-scaling-stroke", "stroke-width": 1.4,
      stroke: cut.made[step] ? this.page.colourOf(tree.members[tree.merges[step].left][0]) : variable("--undone"),
    }));
    const x = dendrogram.cutPlace();
    parts.push(drawing("line", { x1: x, x2: x, y1: 0, y2: rows, stroke: variable("--ink"), "stroke-dasharray": "5 4",
      "vector-effect": "non-scaling-stroke" }));
    const names = down < 7 ? [] : tree.order.map((leaf, place) => this.text(
      FIGURE_WIDTH - room + 6, TOP + (place + 0.5) * down, leafName(tree, leaf), { "font-size": Math.min(13, 0.8 * down) }));
    const bottom = FIGURE_HEIGHT - BOTTOM + 6;
    const ticks = [4, 28, 52, 76, 100].flatMap((at) => [
      drawing("line", { x1: at * across, x2: at * across, y1: bottom - 6, y2: bottom, stroke: variable("--ink") }),
      this.text(at * across, bottom + 10, plain(Math.max(0, dendrogram.height(at))), { "text-anchor": "middle", "font-size": 11 }),
    ]);
    return [drawing("g", { transform: `translate(0 ${TOP}) scale(${across} ${down})` }, ...parts), ...names, ...ticks,
      this.text(50 * across, FIGURE_HEIGHT - 10, tree.axis, { "text-anchor": "middle" })];
  }

  distances() {
    const { matrix, tree } = this.page;
    const [side, n, left] = [FIGURE_HEIGHT - TOP - 20, tree.names.length, 130];
    const step = side / n;
    const squares = matrix.runs().map(([start, length]) => drawing("rect", { x: left + start * step, y: TOP + start * step,
      width: length * step, height: length * step, fill: "none", stroke: variable("--frame"), "stroke-width": 2 }));
    const names = step < 7 ? [] : tree.order.map((leaf, place) => this.text(
      left - 6, TOP + (place + 0.5) * step, leafName(tree, leaf), { "text-anchor": "end", "font-size": Math.min(13, 0.8 * step) }));
    // The colour scale, from near below to far above.
    const [x, bar] = [left + side + 30, 200];
    const scale = Array.from({ length: 50 }, (_, i) => drawing("rect", { x, y: TOP + bar - ((i + 1) * bar) / 50, width: 18, height: bar / 50 + 0.5,
      fill: `rgb(${shade((i + 0.5) / 50)})` }));
    const ends = [this.text(x + 24, TOP + bar, `${matrix.lowest.toFixed(1)} alike`), this.text(x + 24, TOP + 6, "1.0 apart"),
      this.text(x, TOP + bar + 24, "TVD")];
    return [drawing("image", { x: left, y: TOP, width: side, height: side, href: matrix.image.toDataURL(), preserveAspectRatio: "none",
      style: { "image-rendering": "pixelated" } }), ...squares, ...names, ...scale, ...ends];
  }

  png(text, name) {
    const image = new Image();
    image.onload = () => {
      const canvas = element("canvas", { width: 2 * FIGURE_WIDTH, height: 2 * FIGURE_HEIGHT });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(name, blob), "image/png");
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }
}
