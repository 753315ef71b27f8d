// SPDX-License-Identifier: MIT
//
// One message on the page: its text, reasoning, figures, and what can be done with it.

import { announce, copyButton, element, icon, iconButton } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { readDraft, writeDraft } from "./store.js";

const kMaxAnnounced = 400;

function rateText(rate) {
  return rate.toLocaleString("en", { maximumFractionDigits: rate < 100 ? 1 : 0 });
}

function figuresText({ tokens, totalMs, firstMs }) {
  const parts = [];
  if (tokens > 0) parts.push(`${tokens.toLocaleString("en")} token${tokens === 1 ? "" : "s"}`);
  const seconds = (totalMs - firstMs) / 1000;
  if (tokens > 1 && seconds > 0) parts.push(`${rateText((tokens - 1) / seconds)} tokens/s`);
  if (firstMs > 0) parts.push(`first after ${(firstMs / 1000).toPrecision(2)} s`);
  return parts.join(" \u00b7 ");
}

function endText(message) {
  if (message.end === "length") return "The answer reached the maximum of tokens and may be incomplete.";
  return message.end === "stopped" ? "Stopped." : "";
}

// Handlers: edit(message, text), repeat(message), show(message), each for one action of a user.
export class MessageView {
  constructor(message, versions, handlers) {
    this.message = message;
    this.versions = versions;
    this.handlers = handlers;
    this.body = element("div", { class: "message-body" });
    this.foot = element("div", { class: "message-foot" });
    const isUser = message.role === "user";
    this.name = element("h3", { class: isUser ? "visually-hidden" : "message-name" },
                        isUser ? "You" : message.model || "Assistant");
    this.node = element("article", { class: "message message-" + message.role, tabindex: "-1",
                                     "aria-label": isUser ? "You" : "Answer" },
                        this.name, this.body, this.foot);
    if (isUser) this.body.textContent = message.content;
    else this.makeAnswer();
    this.showFoot();
    if (isUser && readDraft(this.draftName) !== "") this.edit();
  }

  get draftName() {
    return "edit." + this.message.id;
  }

  makeAnswer() {
    this.reasoningText = element("div", { class: "reasoning-text markdown" });
    this.reasoningTitle = element("summary", {}, "Reasoning");
    this.reasoning = element("details", { class: "reasoning" }, this.reasoningTitle, this.reasoningText);
    this.reasoning.hidden = true;
    this.content = element("div", { class: "markdown" });
    this.waiting = element("p", { class: "waiting" }, "Waiting for the server");
    this.error = element("p", { class: "message-error" });
    this.body.append(this.reasoning, this.content, this.waiting, this.error);
    this.reasoningView = new MarkdownView(this.reasoningText);
    this.contentView = new MarkdownView(this.content);
    this.showText(false);
  }

  // Shows the text that the message has now. Blocks that are complete are announced.
  showText(announces) {
    const { message } = this;
    const isWriting = message.end === "";
    this.node.classList.toggle("is-writing", isWriting);
    this.node.setAttribute("aria-busy", String(isWriting));
    this.name.textContent = message.model || "Assistant";
    this.reasoning.hidden = message.reasoning === "";
    if (message.reasoning !== "") {
      const isThinking = isWriting && message.content === "";
      const title = isThinking ? "Reasoning\u2026" : "Reasoning";
      if (this.reasoningTitle.textContent !== title) this.reasoningTitle.textContent = title;
      this.reasoningView.set(message.reasoning);
    }
    const final = this.contentView.set(message.content);
    if (announces) for (const node of final) announce(node.textContent.slice(0, kMaxAnnounced));
    this.waiting.hidden = !isWriting || message.content !== "" || message.reasoning !== "";
    this.error.textContent = message.error;
    this.error.hidden = message.error === "";
  }

  showWaiting(text) {
    if (this.waiting.textContent !== text) this.waiting.textContent = text;
  }

  // Announces the blocks that were still open, when an answer has ended.
  announceEnd() {
    for (const { node } of this.contentView.open) announce(node.textContent.slice(0, kMaxAnnounced));
    announce(this.message.error || endText(this.message) || "End of the answer.");
  }

  showFoot() {
    const { message } = this;
    this.foot.replaceChildren();
    if (message.end === "" && message.role === "assistant") return;
    if (this.versions.length > 1) this.foot.append(this.versionSwitch());
    if (message.content !== "") this.foot.append(copyButton("Copy", () => message.content));
    if (message.role === "user") {
      this.foot.append(iconButton("edit", "Edit", () => this.edit()));
    } else {
      this.foot.append(this.repeatButton());
      const figures = [endText(message), message.figures ? figuresText(message.figures) : ""];
      this.foot.append(element("span", { class: "figures" }, figures.filter(Boolean).join(" ")));
    }
  }

  repeatButton() {
    const repeat = () => this.handlers.repeat(this.message);
    if (this.message.end !== "error") return iconButton("repeat", "Regenerate", repeat);
    return element("button", { type: "button", class: "text-button", click: repeat }, "Try again");
  }

  versionSwitch() {
    const at = this.versions.indexOf(this.message);
    const go = (name, label, step) => {
      const other = this.versions[at + step];
      const button = iconButton(name, label, () => this.handlers.show(other));
      button.disabled = other === undefined;
      return button;
    };
    return element("span", { class: "versions", role: "group", "aria-label": "Versions" },
                   go("previous", "Previous version", -1),
                   element("span", {}, `${at + 1} of ${this.versions.length}`),
                   go("next", "Next version", 1));
  }

  // Turns a question into a field. What is typed there is kept as a draft.
  edit() {
    const area = element("textarea", { class: "edit-text", "aria-label": "Edit the message" });
    area.value = readDraft(this.draftName) || this.message.content;
    const form = element("form", { class: "edit-form" }, area, element("div", { class: "edit-buttons" },
      element("button", { type: "button", class: "text-button", click: () => this.endEdit() }, "Cancel"),
      element("button", { type: "submit", class: "primary-button" }, icon("send"), "Send")));
    area.addEventListener("input", () => writeDraft(this.draftName, area.value));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        this.endEdit();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === area) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (area.value.trim() !== "") this.handlers.edit(this.message, area.value);
    });
    this.node.classList.add("is-edited");
    this.body.replaceChildren(form);
    this.foot.replaceChildren();
    area.focus();
  }

  endEdit() {
    writeDraft(this.draftName, "");
    this.node.classList.remove("is-edited");
    this.body.textContent = this.message.content;
    this.showFoot();
    this.foot.querySelector("[aria-label=Edit]").focus();
  }
}
