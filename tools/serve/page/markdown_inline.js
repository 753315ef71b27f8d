// SPDX-License-Identifier: MIT
//
// The inline part of Markdown: text to DOM nodes. Nodes are made by createElement and hold text
// only, so that no text of a model can become markup. Follows CommonMark 0.31, "Inlines", but for
// raw HTML, which stays text, and images, which become links: the page loads nothing from outside.
// TeX between \( \), \[ \] or $$ $$ is shown as it was written.
//
// Time and depth are bounded for any text: runs of backticks are looked up in an index, targets of
// links have a maximum length, and of openers without a closer only the last kMaxOpen count.

const kMaxTarget = 2048;
const kMaxOpen = 64;
const kEntities = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const kEscapable = /[!-/:-@[-`{-~]/;
const kPunctuation = /[\p{P}\p{S}]/u;
const kBareLink = /(?:https?:\/\/|www\.)[^\s<>"]{1,2048}/y;
const kAngleLink = /<((?:https?:\/\/|mailto:)[^\s<>]*|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>/iy;
const kBreak = /<br\s*\/?>/iy;
const kEntity = /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-z]{2,4}));/y;
const kPlain = /[^\\`*_~[\]!<&\nhw$]+/y;

// Returns the address of a link that is safe to follow, or null.
export function safeTarget(target) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(target)) return null;
  try {
    const url = new URL(target);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function makeLink(target) {
  const link = document.createElement("a");
  link.href = target;
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  return link;
}

// Returns a bare address without the punctuation of the sentence around it.
function withoutTail(address) {
  let excess = 0;  // closing parentheses without an opening one
  for (const char of address) excess += char === ")" ? 1 : char === "(" ? -1 : 0;
  let end = address.length;
  for (; end > 0; end--) {
    const char = address[end - 1];
    if (char === ")" && excess > 0) excess--;
    else if (!"?!.,:;'*_~`]".includes(char)) break;
  }
  return address.slice(0, end);
}

// Where each run of backticks is, by its length.
function indexBackticks(text) {
  const runs = new Map();
  for (const match of text.matchAll(/`+/g)) {
    const length = match[0].length;
    if (!runs.has(length)) runs.set(length, { at: [], next: 0 });
    runs.get(length).at.push(match.index);
  }
  return runs;
}

// Items are text, nodes, delimiter runs and brackets, in the order of the text.
class InlineParser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.items = [];
    this.brackets = [];
    this.backticks = null;
    this.noMathEnd = new Set();
  }

  parse() {
    while (this.at < this.text.length) this.step();
    return joinItems(this.items, 0);
  }

  addText(text) {
    const last = this.items[this.items.length - 1];
    if (last && last.kind === "text") last.text += text;
    else this.items.push({ kind: "text", text });
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text);
  }

  step() {
    const char = this.text[this.at];
    switch (char) {
      case "\\": return this.escape();
      case "`": return this.codeSpan();
      case "*": case "_": case "~": return this.delimiters(char);
      case "[": return this.open(1);
      case "!": return this.text[this.at + 1] === "[" ? this.open(2) : this.take(1);
      case "]": return this.close();
      case "<": return this.angle();
      case "&": return this.entity();
      case "\n": return this.newline();
      case "$": return this.text[this.at + 1] === "$" && this.math("$$", "$$") ? undefined : this.take(1);
      case "h": case "w": return this.bareLink();
      default: {
        const plain = this.match(kPlain);
        this.take(plain ? plain[0].length : 1);
      }
    }
  }

  take(length) {
    this.addText(this.text.slice(this.at, this.at + length));
    this.at += length;
  }

  addNode(node) {
    this.items.push({ kind: "node", node });
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === "(" && this.math("\\(", "\\)")) return;
    if (next === "[" && this.math("\\[", "\\]")) return;
    if (next === "\n") {
      this.addNode(document.createElement("br"));
      this.at += 2;
    } else if (next !== undefined && kEscapable.test(next)) {
      this.addText(next);
      this.at += 2;
    } else {
      this.take(1);
    }
  }

  math(open, close) {
    if (this.noMathEnd.has(close)) return false;
    const end = this.text.indexOf(close, this.at + open.length);
    if (end < 0) {
      this.noMathEnd.add(close);
      return false;
    }
    const span = document.createElement("span");
    span.className = "tex";
    span.textContent = this.text.slice(this.at, end + close.length);
    this.addNode(span);
    this.at = end + close.length;
    return true;
  }

  codeSpan() {
    let length = 1;
    while (this.text[this.at + length] === "`") length++;
    this.backticks ??= indexBackticks(this.text);
    const runs = this.backticks.get(length);
    while (runs && runs.next < runs.at.length && runs.at[runs.next] <= this.at) runs.next++;
    if (!runs || runs.next === runs.at.length) return this.take(length);
    const end = runs.at[runs.next];
    let content = this.text.slice(this.at + length, end).replace(/\n/g, " ");
    if (/^ .* $/.test(content) && content.trim() !== "") content = content.slice(1, -1);
    const code = document.createElement("code");
    code.textContent = content;
    this.addNode(code);
    this.at = end + length;
  }

  delimiters(char) {
    let length = 1;
    while (this.text[this.at + length] === char) length++;
    if (char === "~" && length !== 2) return this.take(length);
    const before = this.at > 0 ? this.text[this.at - 1] : " ";
    const after = this.text[this.at + length] ?? " ";
    const spaceBefore = /\s/.test(before), spaceAfter = /\s/.test(after);
    const markBefore = kPunctuation.test(before), markAfter = kPunctuation.test(after);
    const left = !spaceAfter && (!markAfter || spaceBefore || markBefore);
    const right = !spaceBefore && (!markBefore || spaceAfter || markAfter);
    const canOpen = left && (char !== "_" || !right || markBefore);
    const canClose = right && (char !== "_" || !left || markAfter);
    if (!canOpen && !canClose) return this.take(length);
    this.items.push({ kind: "run", char, length, original: length, canOpen, canClose });
    this.at += length;
  }

  open(length) {
    if (this.brackets.length === kMaxOpen) this.brackets.shift();
    this.brackets.push({ item: this.items.length, isImage: length === 2, isActive: true });
    this.items.push({ kind: "bracket", text: this.text.slice(this.at, this.at + length) });
    this.at += length;
  }

  close() {
    const bracket = this.brackets.pop();
    if (!bracket) return this.take(1);
    const target = bracket.isActive ? this.target(this.at + 1) : null;
    if (!target) {
      this.items[bracket.item].kind = "text";
      return this.take(1);
    }
    const content = joinItems(this.items.splice(bracket.item), 1);
    const safe = safeTarget(target.address);
    const node = safe ? makeLink(safe) : document.createElement("span");
    node.append(content);
    if (node.textContent === "") node.textContent = target.address;
    if (!safe) node.append(` (${target.address})`);
    if (target.title) node.title = target.title;
    this.addNode(node);
    this.at = target.end;
    if (!bracket.isImage) for (const outer of this.brackets) outer.isActive = outer.isImage;
  }

  // Reads "(address "title")" at a position. Returns null where there is none.
  target(at) {
    if (this.text[at] !== "(") return null;
    const text = this.text.slice(at, at + kMaxTarget);
    const angle = /^\(\s*<([^<>\n]*)>/.exec(text);
    let address = "", end = 0;
    if (angle) {
      address = angle[1];
      end = angle[0].length;
    } else {
      end = /^\(\s*/.exec(text)[0].length;
      const start = end;
      for (let depth = 0; end < text.length && !/\s/.test(text[end]); end++) {
        if (text[end] === "\\" && end + 1 < text.length) end++;
        else if (text[end] === "(") depth++;
        else if (text[end] === ")" && depth-- === 0) break;
      }
      address = text.slice(start, end);
    }
    const tail = /^(?:\s+(?:"([^"]*)"|'([^']*)'))?\s*\)/.exec(text.slice(end));
    if (!tail) return null;
    address = address.replace(/\\([!-/:-@[-`{-~])/g, "$1").replace(/&amp;/g, "&");
    return { address, title: tail[1] ?? tail[2] ?? "", end: at + end + tail[0].length };
  }

  angle() {
    const lineBreak = this.match(kBreak);
    if (lineBreak) {
      this.addNode(document.createElement("br"));
      this.at += lineBreak[0].length;
      return;
    }
    const link = this.match(kAngleLink);
    if (!link) return this.take(1);
    this.addLink(link[1], link[1].includes(":") ? link[1] : "mailto:" + link[1]);
    this.at += link[0].length;
  }

  bareLink() {
    const before = this.at > 0 ? this.text[this.at - 1] : " ";
    const found = /[\w/.]/.test(before) || this.brackets.length > 0 ? null : this.match(kBareLink);
    if (!found) return this.take(1);
    const address = withoutTail(found[0]);
    if (!/^(?:https?:\/\/|www\.)[^\s]/.test(address)) return this.take(1);
    this.addLink(address, address.startsWith("www.") ? "https://" + address : address);
    this.at += address.length;
  }

  addLink(text, target) {
    const safe = safeTarget(target);
    if (!safe) return this.addText(text);
    const link = makeLink(safe);
    link.textContent = text;
    this.addNode(link);
  }

  entity() {
    const found = this.match(kEntity);
    if (!found) return this.take(1);
    const [whole, decimal, hex, name] = found;
    let char = name ? kEntities[name] : undefined;
    if (!name) {
      const code = decimal ? parseInt(decimal, 10) : parseInt(hex, 16);
      const isValid = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
      char = isValid ? String.fromCodePoint(code) : "\ufffd";
    }
    this.addText(char ?? whole);
    this.at += whole.length;
  }

  newline() {
    const last = this.items[this.items.length - 1];
    let isHard = false;
    if (last && last.kind === "text") {
      isHard = last.text.endsWith("  ");
      last.text = last.text.trimEnd();
    }
    if (isHard) this.addNode(document.createElement("br"));
    else this.addText("\n");
    this.at++;
    while (this.text[this.at] === " ") this.at++;
  }
}

function emphasisElement(char, length) {
  return document.createElement(char === "~" ? "del" : length === 2 ? "strong" : "em");
}

// Whether two runs pair, by CommonMark's rule of three.
function runsMatch(opener, closer) {
  if (opener.char !== closer.char) return false;
  if (!(opener.canClose || closer.canOpen)) return true;
  return (opener.original + closer.original) % 3 !== 0 ||
         (opener.original % 3 === 0 && closer.original % 3 === 0);
}

// Turns items from `first` on into nodes, with emphasis. An item is put on a stack; a closing run
// takes from the stack what stands behind its opener.
function joinItems(items, first) {
  const stack = [];
  const openers = [];  // positions in the stack of runs that may still open
  for (const item of items.slice(first)) {
    if (item.kind !== "run") {
      stack.push(item);
      continue;
    }
    while (item.canClose && item.length > 0) {
      let index = openers.length - 1;
      while (index >= 0 && !runsMatch(stack[openers[index]], item)) index--;
      if (index < 0) break;
      const place = openers[index];
      const opener = stack[place];
      const used = opener.length >= 2 && item.length >= 2 ? 2 : 1;
      const element = emphasisElement(item.char, used);
      element.append(...stack.splice(place + 1).map(toNode));
      opener.length -= used;
      item.length -= used;
      openers.length = index + 1;
      if (opener.length === 0) {
        stack.length = place;
        openers.length = index;
      }
      stack.push({ kind: "node", node: element });
    }
    if (item.length === 0) continue;
    if (item.canOpen) {
      if (openers.length === kMaxOpen) openers.shift();
      openers.push(stack.length);
    }
    stack.push(item);
  }
  const fragment = document.createDocumentFragment();
  fragment.append(...stack.map(toNode));
  fragment.normalize();
  return fragment;
}

function toNode(item) {
  if (item.kind === "node") return item.node;
  return item.kind === "run" ? item.char.repeat(item.length) : item.text;
}

// Returns a DocumentFragment of the inline Markdown in a text.
export function renderInline(text) {
  return new InlineParser(text).parse();
}
