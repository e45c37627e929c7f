// Elements, names, numbers and colours.  Texts from the data only ever become text nodes.

const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
const element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const drawing = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Paul Tol's schemes "muted" and "light", safe for the colour-blind, and three more colours each.
const PALETTES = {
  light: ["#332288", "#CC6677", "#44AA99", "#882255", "#999933", "#AA4499", "#117733", "#DDCC77", "#88CCEE", "#EE7733", "#0077BB", "#7A7A7A"],
  dark: ["#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00", "#DDDDDD", "#C79BF2", "#FF6E6E", "#00C2A8"],
};
const MOST_NAMED = 4;
const N_COLOURS = PALETTES.light.length;
const theme = () => document.documentElement.dataset.theme;
const colour = (number) => PALETTES[theme()][number % N_COLOURS];
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Black or white, whichever is easier to read on a colour. */
function readableOn(hex) {
  const [red, green, blue] = [1, 3, 5].map((start) => (parseInt(hex.slice(start, start + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

// One hue from near to far, so that only the lightness counts: strong is near, faint is far.
const SCALES = {
  light: [[0, 40, 92], [66, 129, 176], [163, 199, 223], [244, 247, 249]],
  dark: [[214, 240, 255], [110, 178, 222], [48, 92, 122], [30, 37, 41]],
};
function shade(share) {
  const scale = SCALES[theme()];
  const place = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const [low, high] = [scale[Math.floor(place)], scale[Math.ceil(place)]];
  return low.map((value, i) => Math.round(value + (high[i] - value) * (place % 1)));
}

// Marks that keep right-to-left names from turning the words around them.
const isolated = (text) => `\u2068${text}\u2069`;
const whole = (number) => number.toLocaleString("en");
const counted = (n, thing) => `${whole(n)} ${thing}${n === 1 ? "" : "s"}`;
const short = (text, most = 28) => {
  const letters = Array.from(String(text).replace(/\s+/g, " "));
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
};

function listed(names, most = 3) {
  const first = names.slice(0, most).map((name) => isolated(short(name)));
  if (names.length > most) first.push(`${names.length - most} more`);
  return first.join(" + ");
}
const leafName = (tree, leaf) => listed(tree.names[leaf], 1);
const groupName = (tree, leaves, most) => listed(namesIn(tree, leaves), most);
/** The names of all clusters in some leaves, in natural order. */
function namesIn(tree, leaves) {
  const ranked = leaves.flatMap((leaf) => tree.names[leaf].map((name, i) => ({ name, rank: tree.ranks[leaf][i] })));
  return ranked.sort((one, other) => one.rank - other.rank).map(({ name }) => name);
}

/** The names of new clusters, as in labels.csv: their members in natural order, all different. */
function newNames(tree, groups) {
  const found = new Set();
  for (const leaves of groups) {
    const own = namesIn(tree, leaves);
    if (own.length > MOST_NAMED) own.splice(MOST_NAMED - 1, own.length, `${own.length - MOST_NAMED + 1} more`);
    let name = own.join(" + ");
    while (found.has(name)) name += "'";
    found.add(name);
  }
  return [...found];
}
const nodeName = (tree, node, most) => groupName(tree, tree.members[node], most);
const sizeOf = (tree, leaves) => leaves.reduce((sum, leaf) => sum + tree.sizes[leaf], 0);
/** Increasing whole numbers in words: 9, 11 to 13. */
function runs(numbers) {
  const found = [];
  for (const number of numbers) {
    if (found.length > 0 && found.at(-1)[1] === number - 1) found.at(-1)[1] = number;
    else found.push([number, number]);
  }
  return found.map(([first, last]) => (first === last ? whole(first) : `${whole(first)} to ${whole(last)}`)).join(", ");
}
const plain = (value, digits = 2) => (value === null || value === undefined ? "unknown" : value.toFixed(digits));

/** The network may miss a difference but invents none, so only the lower end is about the clusters. */
function tvdAtLeast(tvd, low) {
  return `TVD ${plain(tvd)}${low === null ? "" : `, at least ${plain(low)} (95% sure)`}`;
}

function edgesOf(entry) {
  const times = entry.times_chance === null ? "" : `, ${Number(entry.times_chance.toPrecision(2))} times as many as by chance`;
  return `${counted(entry.edges, "edge")} between them${times}`;
}
const togetherIn = (entry) => `together in ${Math.round(100 * entry.stability)}% of merges of parts of the data`;

function evidenceOf(entry) {
  const parts = [];
  if (entry.strength !== null) parts.push(`strength ${plain(entry.strength)}`);
  if (entry.edges !== null) parts.push(edgesOf(entry));
  if (entry.stability !== null) parts.push(togetherIn(entry));
  parts.push(entry.tvd === null ? `distance ${plain(entry.height, 3)}` : tvdAtLeast(entry.tvd, entry.low));
  return parts;
}

/** Call a function for a click, but not for the end of a drag. */
function onPress(node, then) {
  let start = null;
  node.addEventListener("pointerdown", (event) => { start = event; });
  node.addEventListener("click", (event) => {
    if (start && Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) < 5) then(event);
  });
}

/** What this browser keeps for the page, which may be nothing. */
function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Whether it could be kept. */
function remember(name, text) {
  try {
    localStorage.setItem(name, text);
    return true;
  } catch {
    return false;
  }
}

function showTip(text, event) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = text === "";
  if (tip.hidden || !event) return;
  const [below, high] = [event.clientY + 18, tip.offsetHeight];
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${below + high > innerHeight ? event.clientY - high - 12 : below}px`;
}
const hideTip = () => showTip("");

/** A canvas as sharp as the screen; returns its context in CSS pixels. */
function sharp(canvas) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * devicePixelRatio);
  canvas.height = Math.round(height * devicePixelRatio);
  const context = canvas.getContext("2d");
  context.scale(devicePixelRatio, devicePixelRatio);
  return { context, width, height };
}
