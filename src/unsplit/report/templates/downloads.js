// Labels as CSV, and figures as SVG and PNG.

const [FIGURE_WIDTH, FIGURE_HEIGHT] = [900, 700];

function save(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
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
    const group = (leaf) => String(cut.group[leaf]);
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

  figure(name) {
    const root = drawing("svg", { xmlns: SVG, width: FIGURE_WIDTH, height: FIGURE_HEIGHT, viewBox: `0 0 ${FIGURE_WIDTH} ${FIGURE_HEIGHT}`,
      "font-family": "sans-serif", "font-size": 13 });
    root.append(drawing("rect", { width: "100%", height: "100%", fill: variable("--paper") }));
    root.append(...this[name]());
    return root;
  }

  picture() {
    const { picture, colours, cut } = this.page;
    const parts = [];
    picture.points(FIGURE_WIDTH, FIGURE_HEIGHT, (leaf) => colours[cut.group[leaf]], (x, y, r, fill) => {
      parts.push(drawing("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: r.toFixed(1), fill }));
    });
    const { numbers, size } = picture.numbers(FIGURE_WIDTH, FIGURE_HEIGHT, cut.group);
    for (const { text, x, y } of numbers) {
      parts.push(drawing("text", { x, y, "font-size": size, "dominant-baseline": "central", "text-anchor": "middle", fill: variable("--ink"), stroke: variable("--paper"),
        "stroke-width": 4, "paint-order": "stroke", "font-weight": "bold" }, text));
    }
    return parts;
  }

  tree() {
    const { dendrogram, tree, cut } = this.page;
    const [rows, room] = [tree.names.length, 170];
    const [across, down] = [(FIGURE_WIDTH - room) / 101, (FIGURE_HEIGHT - 20) / rows];
    const parts = tree.merges.map((_, step) => drawing("path", {
      d: dendrogram.line(step), fill: "none", "vector-effect": "non-scaling-stroke", "stroke-width": 1.4,
      stroke: cut.made[step] ? this.page.colourOf(tree.members[tree.merges[step].left][0]) : variable("--undone"),
    }));
    const x = dendrogram.cutPlace();
    parts.push(drawing("line", { x1: x, x2: x, y1: 0, y2: rows, stroke: variable("--ink"), "stroke-dasharray": "5 4",
      "vector-effect": "non-scaling-stroke" }));
    const names = down < 7 ? [] : tree.order.map((leaf, place) => drawing("text", {
      x: FIGURE_WIDTH - room + 6, y: 10 + (place + 0.5) * down, "dominant-baseline": "middle", fill: variable("--ink"),
      "font-size": Math.min(13, 0.8 * down) }, leafName(tree, leaf)));
    return [drawing("g", { transform: `translate(0 10) scale(${across} ${down})` }, ...parts), ...names];
  }

  distances() {
    const { matrix } = this.page;
    const [side, n] = [FIGURE_HEIGHT - 20, this.page.tree.names.length];
    const squares = matrix.runs().map(([start, length]) => drawing("rect", { x: 10 + (start * side) / n, y: 10 + (start * side) / n,
      width: (length * side) / n, height: (length * side) / n, fill: "none", stroke: variable("--frame"), "stroke-width": 2 }));
    return [drawing("image", { x: 10, y: 10, width: side, height: side, href: matrix.image.toDataURL(), preserveAspectRatio: "none",
      style: { "image-rendering": "pixelated" } }), ...squares];
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
