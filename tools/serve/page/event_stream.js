// SPDX-License-Identifier: MIT
//
// Parser of server-sent events (WHATWG HTML, "Server-sent events"), fed with text that may be cut
// anywhere, also between CR and LF.

export class EventStreamParser {
  constructor() {
    this.rest = [];          // pieces of the line that is not complete yet
    this.isFirst = true;     // nothing was read yet: a byte order mark may come
    this.skipsNewline = false;  // the last piece ended in CR, so a LF belongs to it
    this.data = [];
    this.type = "";
  }

  // Takes the next piece of text. Returns the events that it completes, as {type, data}.
  push(text) {
    if (this.isFirst && text.length > 0) {
      this.isFirst = false;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    const events = [];
    let start = 0;
    if (this.skipsNewline && text.length > 0) {
      this.skipsNewline = false;
      if (text[0] === "\n") start = 1;
    }
    for (let at = start; at < text.length; at++) {
      const char = text[at];
      if (char !== "\n" && char !== "\r") continue;
      this.rest.push(text.slice(start, at));
      const line = this.rest.join("");
      this.rest = [];
      this.takeLine(line, events);
      if (char === "\r") {
        if (at + 1 === text.length) this.skipsNewline = true;
        else if (text[at + 1] === "\n") at++;
      }
      start = at + 1;
    }
    if (start < text.length) this.rest.push(text.slice(start));
    return events;
  }

  takeLine(line, events) {
    if (line === "") {
      if (this.data.length > 0) {
        events.push({ type: this.type || "message", data: this.data.join("\n") });
      }
      this.data = [];
      this.type = "";
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value[0] === " ") value = value.slice(1);
    if (field === "data") this.data.push(value);
    else if (field === "event") this.type = value;
  }
}
