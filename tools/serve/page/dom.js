// SPDX-License-Identifier: MIT
//
// Small helpers that make DOM nodes. Text is always set as text.

const kSvg = "http://www.w3.org/2000/svg";
const kIconPaths = {
  add: "M12 5v14M5 12h14",
  check: "M5 12.5l4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  down: "M12 5v14M6 13l6 6 6-6",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  next: "M9 6l6 6-6 6",
  previous: "M15 6l-6 6 6 6",
  repeat: "M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5",
  send: "M12 19V5M6 11l6-6 6 6",
  settings: "M4 8h9M17 8h3M4 16h3M11 16h9M13 6v4h4V6zM7 14v4h4v-4z",
  stop: "M7 7h10v10H7z",
};

// Makes an element. A function as an attribute's value listens for the event of that name; undefined
// leaves the attribute out. Children are nodes or text.
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function icon(name) {
  const svg = document.createElementNS(kSvg, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon icon-" + name);
  const path = document.createElementNS(kSvg, "path");
  path.setAttribute("d", kIconPaths[name]);
  svg.append(path);
  return svg;
}

// A button that shows an icon alone; `label` is its name.
export function iconButton(name, label, onClick) {
  return element("button", { type: "button", class: "icon-button", "aria-label": label, title: label,
                             click: onClick }, icon(name));
}

// Puts a text on the clipboard. The interface for it exists only on HTTPS and on this machine; a
// selection works everywhere.
async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Not allowed: the selection below may be.
    }
  }
  const area = element("textarea", { class: "visually-hidden", readonly: "" });
  area.value = text;
  const focused = document.activeElement;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}

// A button that copies what `read` returns, and shows for a moment whether it did.
export function copyButton(label, read) {
  const button = iconButton("copy", label, async () => {
    const copied = await copyText(read());
    button.replaceChildren(icon(copied ? "check" : "close"));
    button.title = copied ? "Copied" : "The browser refused to copy";
    announce(button.title);
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.title = label;
    }, 1500);
  });
  return button;
}

// Says a text to screen readers, after what they are saying.
export function announce(text) {
  const line = element("p", {}, text);
  const region = document.getElementById("announcements");
  region.append(line);
  while (region.childElementCount > 20) region.firstElementChild.remove();
}

// Offers a file for download.
export function downloadText(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
