// The tree, its cut, and what answers change: no document, so that it can be tested alone.
"use strict";

const UNKNOWN = 65535;

function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}

/** Leaves below every node; node l + t is made by merge t. */
function membersOf(merges, leaves) {
  const members = Array.from({ length: leaves }, (_, leaf) => [leaf]);
  for (const merge of merges) members.push(members[merge.left].concat(members[merge.right]));
  return members;
}

/** Sets of leaves that grow together.  An answer has leaves on both sides. */
class Groups {
  constructor(sizes, answers) {
    this.parent = Int32Array.from(sizes, (_, leaf) => leaf);
    this.sizes = [...sizes]; // of each set, at its root
    this.different = answers.filter((one) => one.answer === "different");
    for (const answer of answers.filter((one) => one.answer === "same")) {
      const [first, ...others] = answer.left.concat(answer.right);
      for (const leaf of others) this.unite(first, leaf);
    }
  }

  find(leaf) {
    while (this.parent[leaf] !== leaf) {
      this.parent[leaf] = this.parent[this.parent[leaf]];
      leaf = this.parent[leaf];
    }
    return leaf;
  }

  unite(a, b) {
    const [one, other] = [this.find(a), this.find(b)];
    if (one === other) return;
    this.parent[other] = one;
    this.sizes[one] += this.sizes[other];
  }

  size(leaf) {
    return this.sizes[this.find(leaf)];
  }

  /** Whether one set holds leaves of both sides of an answer. */
  joins(answer) {
    const roots = new Set(answer.left.map((leaf) => this.find(leaf)));
    return answer.right.some((leaf) => roots.has(this.find(leaf)));
  }

  /** Whether the two sets hold both sides of an answer "different". */
  apart(a, b) {
    const [one, other] = [this.find(a), this.find(b)];
    const holds = (root, leaves) => leaves.some((leaf) => this.find(leaf) === root);
    return this.different.some(({ left, right }) =>
      (holds(one, left) && holds(other, right)) || (holds(one, right) && holds(other, left)));
  }
}

/**
 * The cut that answers allow: "same" comes first, then the merges of the cut in their order.
 * Of a merge that would join what was called different only the larger side goes on; so does that
 * of a merge which obeyed an answer that was taken back.
 */
function constrainedCut(tree, taken, answers) {
  const leaves = tree.names.length;
  const groups = new Groups(tree.sizes, answers);
  const made = new Array(tree.merges.length).fill(false);
  const standing = Array.from(tree.names, (_, leaf) => leaf); // a leaf for every node
  tree.merges.forEach((merge, step) => {
    const [left, right] = [standing[merge.left], standing[merge.right]];
    standing.push(groups.size(left) >= groups.size(right) ? left : right);
    if (!taken[step]) return;
    const apart = groups.find(left) !== groups.find(right);
    if (apart && (tree.obeyed[step] || groups.apart(left, right))) return;
    groups.unite(left, right);
    made[step] = true;
  });
  const numbers = new Map();
  const group = Int32Array.from({ length: leaves }, (_, leaf) => {
    const root = groups.find(leaf);
    if (!numbers.has(root)) numbers.set(root, numbers.size);
    return numbers.get(root);
  });
  return { group, made, count: numbers.size };
}

/** Which merges were made only because answers given before called both sides the same. */
function obeyedSteps(tree, given) {
  const groups = new Groups(tree.sizes, given);
  const joined = ({ left, right }) => groups.find(tree.members[left][0]) === groups.find(tree.members[right][0]);
  return tree.merges.map((merge) => merge.stage === "must_link" && joined(merge));
}

/** Answers that make a new one impossible; none if it agrees with all of them. */
function contradictions(tree, answers, wanted) {
  const others = answers.filter((one) => one.pair !== wanted.pair);
  const groups = new Groups(tree.sizes, others.concat([wanted]));
  if (wanted.answer === "same") return others.filter((one) => one.answer === "different" && groups.joins(one));
  if (!groups.joins(wanted)) return [];
  const roots = new Set(wanted.left.map((leaf) => groups.find(leaf)));
  return others.filter((one) => one.answer === "same" && roots.has(groups.find(one.left[0])));
}

function cutAt(tree, count) {
  return tree.merges.map((_, step) => step < tree.names.length - count);
}

/** Index of the pair i < j in the upper triangle of an n × n matrix, row by row. */
function pairIndex(i, j, n) {
  const [a, b] = i < j ? [i, j] : [j, i];
  return a * n - (a * (a + 1)) / 2 + (b - a - 1);
}

/** The names on both sides of an answer: as they were given, or those of the leaves. */
function namesOf(tree, one) {
  return one.names ?? [one.left, one.right].map((leaves) => leaves.flatMap((leaf) => tree.names[leaf]));
}

/** What "merge --constraints" reads. */
function exported(tree, answers) {
  const entry = (one) => {
    const [left, right] = namesOf(tree, one);
    return { answer: one.answer, left, right };
  };
  return { format: "unsplit.constraints/1", result: tree.fingerprint, answers: answers.map(entry) };
}
