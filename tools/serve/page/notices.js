// SPDX-License-Identifier: MIT
//
// Short messages above the conversation.

import { element, iconButton } from "./dom.js";

// Shows a text; `kind` is "error" or "info". With `action`, {label, run}, a button. It goes by itself
// after `seconds`, if they are given. Returns a function that takes it away.
export function showNotice(text, { kind = "info", action = null, seconds = 0 } = {}) {
  const notice = element("div", { class: "notice notice-" + kind, role: kind === "error" ? "alert" : "status" },
                         element("p", {}, text));
  const remove = () => notice.remove();
  if (action) {
    notice.append(element("button", { type: "button", class: "text-button", click: () => {
      remove();
      action.run();
    } }, action.label));
  }
  notice.append(iconButton("close", "Close this message", remove));
  for (const other of document.querySelectorAll("#notices .notice")) {
    if (other.firstChild.textContent === text) other.remove();
  }
  document.getElementById("notices").append(notice);
  if (seconds > 0) setTimeout(remove, seconds * 1000);
  return remove;
}
