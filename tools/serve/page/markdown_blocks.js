// SPDX-License-Identifier: MIT
//
// The block part of Markdown: text to a tree of blocks.
//
//   {type: "paragraph", text}            {type: "heading", level, text}      {type: "rule"}
//   {type: "code", language, text}       {type: "quote", blocks}
//   {type: "list", isOrdered, start, isLoose, items: [{isDone, blocks}]}     isDone: null: no task
//   {type: "table", head, align, rows}   cells are inline Markdown
//
// Blocks of the top level also have `offset`, where they begin in the text, and `source`, their text.

const kMaxDepth = 20;      // of quotes and lists in each other; deeper ones are paragraphs
const kMaxColumns = 100;

const kFence = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const kRule = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const kQuote = /^ {0,3}>/;
const kItem = /^( {0,3})([-+*]|\d{1,9}[.)])(?:([ \t]+)(.*))?$/;
// One dash is no underline: while a list is being written, its first dash stands alone.
const kUnderline = /^ {0,3}(=+|-{2,})[ \t]*$/;
const kTableRule = /^[|:\- \t]*-[|:\- \t]*$/;
const kIndented = /^(?: {4}| {0,3}\t)/;

function isBlank(line) {
  return line.trim() === "";
}

function indentOf(line) {
  let width = 0;
  for (const char of line) {
    if (char === " ") width++;
    else if (char === "\t") width += 4 - (width % 4);
    else break;
  }
  return width;
}

// Removes up to `width` columns of indent.
function dedent(line, width) {
  let column = 0, at = 0;
  while (at < line.length && column < width) {
    if (line[at] === " ") column++;
    else if (line[at] === "\t") column += 4 - (column % 4);
    else break;
    at++;
  }
  return " ".repeat(Math.max(0, column - width)) + line.slice(at);
}

function splitRow(line) {
  let row = line.trim();
  if (row.startsWith("|")) row = row.slice(1);
  const cells = [];
  let cell = "";
  for (let at = 0; at < row.length; at++) {
    if (row[at] === "\\" && row[at + 1] === "|") {
      cell += "|";
      at++;
    } else if (row[at] === "|") {
      cells.push(cell.trim());
      cell = "";
    } else {
      cell += row[at];
    }
  }
  if (cell.trim() !== "" || !row.endsWith("|")) cells.push(cell.trim());
  return cells.slice(0, kMaxColumns);
}

function readAlign(line) {
  return splitRow(line).map((cell) => {
    const left = cell.startsWith(":"), right = cell.endsWith(":");
    return left && right ? "center" : right ? "right" : left ? "left" : "";
  });
}

// Reads the blocks of some lines, one after another.
class BlockReader {
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
    this.at = 0;
  }

  read() {
    const blocks = [];
    for (;;) {
      while (this.at < this.lines.length && isBlank(this.lines[this.at])) this.at++;
      if (this.at === this.lines.length) return blocks;
      const first = this.at;
      const block = this.block();
      block.firstLine = first;
      block.endLine = this.at;
      blocks.push(block);
    }
  }

  block() {
    const line = this.lines[this.at];
    if (kIndented.test(line)) return this.indentedCode();
    const fence = kFence.exec(line);
    if (fence) return this.fencedCode(fence);
    const heading = kHeading.exec(line);
    if (heading) {
      this.at++;
      const text = (heading[2] ?? "").replace(/(?:^|[ \t])#+[ \t]*$/, "").trim();
      return { type: "heading", level: heading[1].length, text };
    }
    if (kRule.test(line)) {
      this.at++;
      return { type: "rule" };
    }
    if (this.depth < kMaxDepth) {
      if (kQuote.test(line)) return this.quote();
      if (kItem.test(line)) return this.list();
    }
    if (this.isTable()) return this.table();
    return this.paragraph();
  }

  fencedCode([, indent, fence, info]) {
    const lines = [];
    const isEnd = (line) => {
      const text = line.trim();
      return indentOf(line) < 4 && text.length >= fence.length && text === fence[0].repeat(text.length);
    };
    for (this.at++; this.at < this.lines.length; this.at++) {
      if (isEnd(this.lines[this.at])) {
        this.at++;
        break;
      }
      lines.push(dedent(this.lines[this.at], indent.length));
    }
    return { type: "code", language: info.trim().split(/\s+/)[0], text: lines.join("\n") };
  }

  indentedCode() {
    const lines = [];
    while (this.at < this.lines.length &&
           (kIndented.test(this.lines[this.at]) || isBlank(this.lines[this.at]))) {
      lines.push(dedent(this.lines[this.at++], 4));
    }
    while (isBlank(lines[lines.length - 1])) lines.pop();
    return { type: "code", language: "", text: lines.join("\n") };
  }

  quote() {
    const inner = [];
    while (this.at < this.lines.length && kQuote.test(this.lines[this.at])) {
      inner.push(this.lines[this.at++].replace(/^ {0,3}> ?/, ""));
    }
    return { type: "quote", blocks: new BlockReader(inner, this.depth + 1).read() };
  }

  list() {
    const [, , marker] = kItem.exec(this.lines[this.at]);
    const isOrdered = /\d/.test(marker);
    const block = { type: "list", isOrdered, start: isOrdered ? parseInt(marker, 10) : 1,
                    isLoose: false, items: [] };
    const kind = marker[marker.length - 1];
    while (this.at < this.lines.length) {
      const found = kItem.exec(this.lines[this.at]);
      if (!found || !found[2].endsWith(kind) || /\d/.test(found[2]) !== isOrdered ||
          kRule.test(this.lines[this.at])) break;
      const { inner, endsBlank } = this.item(found);
      const item = { isDone: null, blocks: [] };
      const task = /^\[([ xX])\][ \t]+/.exec(inner[0]);
      if (task) {
        item.isDone = task[1] !== " ";
        inner[0] = inner[0].slice(task[0].length);
      }
      item.blocks = new BlockReader(inner, this.depth + 1).read();
      block.items.push(item);
      if (hasGap(item.blocks)) block.isLoose = true;
      const next = this.at < this.lines.length ? kItem.exec(this.lines[this.at]) : null;
      if (endsBlank && next && next[2].endsWith(kind) && !kRule.test(this.lines[this.at])) {
        block.isLoose = true;
      }
    }
    return block;
  }

  // Reads the lines of one item, without its marker and indent. Moves behind blank lines only when
  // the item goes on or another one follows.
  item([, indent, marker, gap, rest]) {
    const isWide = gap === undefined || indentOf(gap) > 4;
    const width = indent.length + marker.length + (isWide ? 1 : indentOf(gap));
    const inner = [isWide && gap !== undefined ? gap.slice(1) + rest : rest ?? ""];
    let hasFence = kFence.test(inner[0]);
    let blanks = 0;
    let at = this.at + 1;
    for (; at < this.lines.length; at++) {
      const line = this.lines[at];
      if (isBlank(line)) {
        if (inner.length === 1 && inner[0] === "") break;
        blanks++;
        continue;
      }
      // Models indent lists in a numbered item by two columns, where CommonMark wants three.
      const isInside = indentOf(line) >= width || (indentOf(line) >= indent.length + 2 && kItem.test(line));
      const goesOn = blanks === 0 && !hasFence && continuesParagraph(line, inner[inner.length - 1]);
      if (!isInside && !goesOn) break;
      while (blanks > 0) {
        inner.push("");
        blanks--;
      }
      inner.push(dedent(line, width));
      hasFence ||= kFence.test(inner[inner.length - 1]);
    }
    this.at = at;
    if (blanks > 0 && !(at < this.lines.length && kItem.test(this.lines[at]))) this.at = at - blanks;
    return { inner, endsBlank: blanks > 0 };
  }

  isTable() {
    const next = this.lines[this.at + 1];
    if (next === undefined || !this.lines[this.at].includes("|") || !kTableRule.test(next)) return false;
    const rules = splitRow(next);
    return rules.every((cell) => /^:?-+:?$/.test(cell)) &&
           splitRow(this.lines[this.at]).length === rules.length;
  }

  table() {
    const block = { type: "table", head: splitRow(this.lines[this.at]),
                    align: readAlign(this.lines[this.at + 1]), rows: [] };
    for (this.at += 2; this.at < this.lines.length; this.at++) {
      const line = this.lines[this.at];
      if (isBlank(line) || startsBlock(line)) break;
      block.rows.push(splitRow(line).slice(0, block.head.length));
    }
    return block;
  }

  paragraph() {
    const lines = [this.lines[this.at++].trimStart()];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (isBlank(line)) break;
      const underline = kUnderline.exec(line);
      if (underline) {
        this.at++;
        return { type: "heading", level: underline[1][0] === "=" ? 1 : 2, text: lines.join("\n").trim() };
      }
      if (startsBlock(line) || this.isTable()) break;
      lines.push(line.trimStart());
      this.at++;
    }
    return { type: "paragraph", text: lines.join("\n").trimEnd() };
  }
}

// Whether a line ends the paragraph before it. Only a list that begins with 1 does, so that a
// sentence with a year at the start of a line stays one.
function startsBlock(line) {
  if (kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line)) return true;
  const item = kItem.exec(line);
  return item !== null && item[4] !== undefined && item[4].trim() !== "" &&
         (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1);
}

// Whether a line without indent goes on the paragraph that an item ends with.
function continuesParagraph(line, last) {
  const mayBeOther = startsBlock(line) || kItem.test(line);
  const isOther = isBlank(last) || kIndented.test(last) || kHeading.test(last) || kRule.test(last) ||
                  kQuote.test(last) || last.includes("|");
  return !mayBeOther && !isOther;
}

// Whether blank lines stand between blocks.
function hasGap(blocks) {
  return blocks.some((block, index) => index > 0 && block.firstLine > blocks[index - 1].endLine);
}

// Returns the blocks of a text.
export function parseBlocks(text) {
  const lines = text.split("\n").map((line) => line.endsWith("\r") ? line.slice(0, -1) : line);
  const offsets = [];
  let offset = 0;
  for (const line of text.split("\n")) {
    offsets.push(offset);
    offset += line.length + 1;
  }
  const blocks = new BlockReader(lines, 0).read();
  for (const block of blocks) {
    block.offset = offsets[block.firstLine];
    block.source = lines.slice(block.firstLine, block.endLine).join("\n");
  }
  return blocks;
}
