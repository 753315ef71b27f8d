// SPDX-License-Identifier: MIT
//
// Markdown to DOM nodes, as a model writes it: whole, or while more text comes. Follows CommonMark
// 0.31 and GitHub's tables, task lists and strikethrough; raw HTML, reference links and lazy
// continuation of quotes are left out. Never uses innerHTML (markdown_inline.js says how).

import { renderInline } from "./markdown_inline.js";
import { parseBlocks } from "./markdown_blocks.js";
import { copyButton, element } from "./dom.js";

// A heading of an answer stands below the page's own, which go down to h3.
const kFirstHeading = 4;

function renderBlocks(parent, blocks) {
  parent.append(...blocks.map(renderBlock));
}

function codeBlock(block) {
  const code = element("code", {}, block.text);
  const label = element("span", { class: "code-language" }, block.language || "text");
  const copy = copyButton("Copy code", () => code.textContent);
  return element("div", { class: "code-block" }, element("div", { class: "code-head" }, label, copy),
                 element("pre", { tabindex: "0" }, code));
}

function tableCell(name, text, align) {
  const cell = element(name, name === "th" ? { scope: "col" } : {});
  if (align) cell.className = "align-" + align;
  cell.append(renderInline(text));
  return cell;
}

function table(block) {
  const row = (name, cells) => element("tr", {}, ...cells.map(
    (text, column) => tableCell(name, text, block.align[column])));
  return element("div", { class: "table-scroll", tabindex: "0" }, element("table", {},
    element("thead", {}, row("th", block.head)),
    element("tbody", {}, ...block.rows.map((cells) => row("td", cells)))));
}

function list(block) {
  const node = element(block.isOrdered ? "ol" : "ul");
  if (block.isOrdered && block.start !== 1) node.start = block.start;
  for (const item of block.items) {
    const entry = element("li");
    if (item.isDone !== null) {
      entry.className = "task";
      const box = element("input", { type: "checkbox", disabled: "", "aria-label": "Task" });
      box.checked = item.isDone;
      entry.append(box);
    }
    for (const inner of item.blocks) {
      // A tight list has no paragraphs.
      if (inner.type === "paragraph" && !block.isLoose) entry.append(renderInline(inner.text));
      else entry.append(renderBlock(inner));
    }
    node.append(entry);
  }
  return node;
}

function renderBlock(block) {
  switch (block.type) {
    case "heading": {
      const level = Math.min(6, kFirstHeading - 1 + block.level);
      const node = element("h" + level, { class: "heading-" + block.level });
      node.append(renderInline(block.text));
      return node;
    }
    case "code": return codeBlock(block);
    case "table": return table(block);
    case "list": return list(block);
    case "rule": return element("hr");
    case "quote": {
      const node = element("blockquote");
      renderBlocks(node, block.blocks);
      return node;
    }
    default: {
      const node = element("p");
      node.append(renderInline(block.text));
      return node;
    }
  }
}

// Renders a text that grows into `container`, whose other content it replaces. A block is rendered
// again only while it can still change: the last one, and the one before it until the first line of
// the last is whole.
export class MarkdownView {
  constructor(container) {
    this.container = container;
    this.container.replaceChildren();
    this.text = "";
    this.finalEnd = 0;       // offset in the text of the first block that may change
    this.open = [];          // {block, node} of the blocks behind it
  }

  // Sets the whole text. Returns the nodes that became final.
  set(text) {
    if (!text.startsWith(this.text)) {
      this.container.replaceChildren();
      this.finalEnd = 0;
      this.open = [];
    }
    this.text = text;
    const rest = text.slice(this.finalEnd);
    const blocks = parseBlocks(rest);
    this.replaceOpen(blocks);
    let nFinal = blocks.length - 1;
    if (nFinal > 0 && !rest.includes("\n", blocks[nFinal].offset)) nFinal--;
    if (nFinal <= 0) return [];
    this.finalEnd += blocks[nFinal].offset;
    return this.open.splice(0, nFinal).map((entry) => entry.node);
  }

  replaceOpen(blocks) {
    blocks.forEach((block, index) => {
      const entry = this.open[index];
      if (entry && isSameBlock(entry.block, block)) return;
      if (entry && entry.block.type === "code" && block.type === "code" &&
          entry.block.language === block.language) {
        // Kept, so that a selection and the focus of its button stay.
        entry.node.querySelector("code").textContent = block.text;
        entry.block = block;
        return;
      }
      const node = renderBlock(block);
      if (entry) entry.node.replaceWith(node);
      else this.container.append(node);
      this.open[index] = { block, node };
    });
    for (const entry of this.open.splice(blocks.length)) entry.node.remove();
  }
}

function isSameBlock(a, b) {
  return a.type === b.type && a.source === b.source;
}

// Renders a whole text into `container`.
export function renderMarkdown(container, text) {
  new MarkdownView(container).set(text);
}
