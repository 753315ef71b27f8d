// SPDX-License-Identifier: MIT
//
// Conversations as data. A conversation is a tree of messages: an edited question or a repeated
// answer is a new child of the same parent, so that nothing written is lost. `leaf` names the end of
// the path that is shown.
//
//   {id, title, hasOwnTitle, created, updated, model, system, settings, leaf,
//    messages: [{id, parent, role, content, reasoning, model, created, end, error, figures}]}
//
// `end` of an answer: "" while it is written, "stop", "length", "stopped" (by the user) or "error".

const kFormat = "qsf-conversations";
const kMaxImportBytes = 64 << 20;
const kMaxTitle = 60;

export const kSettings = {
  temperature: { min: 0, max: 2, isInteger: false },
  top_p: { min: 0, max: 1, isInteger: false },
  top_k: { min: 0, max: 1000000, isInteger: true },
  min_p: { min: 0, max: 1, isInteger: false },
  max_tokens: { min: 1, max: 10000000, isInteger: true },
  seed: { min: 0, max: Number.MAX_SAFE_INTEGER, isInteger: true },
};
export const kMaxStops = 4;

export function makeId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newConversation({ model = "", system = "", settings = {} } = {}) {
  const now = Date.now();
  return { id: makeId(), title: "New conversation", hasOwnTitle: false, created: now, updated: now, model,
           system, settings: { ...settings }, leaf: null, messages: [] };
}

// Adds a message below `parent` (an id, or null for a first one) and makes it the leaf.
export function addMessage(conversation, parent, role, content) {
  const message = { id: makeId(), parent, role, content, reasoning: "", model: "", created: Date.now(),
                    end: "", error: "", figures: null };
  conversation.messages.push(message);
  conversation.leaf = message.id;
  conversation.updated = message.created;
  if (role === "user" && !conversation.hasOwnTitle && parent === null) conversation.title = titleOf(content);
  return message;
}

function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  const chars = Array.from(line);
  if (chars.length <= kMaxTitle) return line || "New conversation";
  return chars.slice(0, kMaxTitle - 1).join("").trimEnd() + "\u2026";
}

// Returns the messages that are shown, from the first on.
export function shownMessages(conversation) {
  const byId = new Map(conversation.messages.map((message) => [message.id, message]));
  const path = [];
  for (let message = byId.get(conversation.leaf); message; message = byId.get(message.parent)) path.push(message);
  return path.reverse();
}

// Returns the versions of a message: the children of its parent, oldest first.
export function versionsOf(conversation, message) {
  return conversation.messages.filter((other) => other.parent === message.parent);
}

// Shows another version of a message, with what was last written below it.
export function showVersion(conversation, message) {
  let leaf = message;
  for (;;) {
    const children = conversation.messages.filter((other) => other.parent === leaf.id);
    if (children.length === 0) break;
    leaf = children[children.length - 1];
  }
  conversation.leaf = leaf.id;
}

// Returns the messages of a request that continues the path which ends at `last`. An answer that
// failed before its first word is left out, and questions that then follow each other are joined,
// because many chat templates ask for turns.
export function requestMessages(conversation, last) {
  const messages = [];
  if (conversation.system.trim() !== "") messages.push({ role: "system", content: conversation.system });
  for (const { role, content } of shownMessages({ ...conversation, leaf: last })) {
    const previous = messages[messages.length - 1];
    if (role === "assistant" && content === "") continue;
    if (role === "user" && previous?.role === "user") previous.content += "\n\n" + content;
    else messages.push({ role, content });
  }
  return messages;
}

export function requestBody(conversation, model, last) {
  return { model, messages: requestMessages(conversation, last), stream: true,
           stream_options: { include_usage: true }, ...conversation.settings };
}

// Returns a fence of backticks that no line of a text closes.
function fenceFor(text) {
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), (match) => match[0].length));
  return "`".repeat(longest + 1);
}

// Returns the path that is shown as Markdown.
export function toMarkdown(conversation) {
  const parts = [`# ${conversation.title}`];
  if (conversation.system.trim() !== "") parts.push("## System", conversation.system);
  for (const message of shownMessages(conversation)) {
    const who = message.role === "user" ? "User" : `Assistant${message.model ? ` (${message.model})` : ""}`;
    parts.push(`## ${who}`);
    if (message.reasoning) {
      const fence = fenceFor(message.reasoning);
      parts.push(`Reasoning:\n\n${fence}text\n${message.reasoning}\n${fence}`);
    }
    if (message.content) parts.push(message.content);
    if (message.error) parts.push(`Error: ${message.error}`);
  }
  return parts.join("\n\n") + "\n";
}

export function toJson(conversations) {
  return JSON.stringify({ format: kFormat, version: 1, conversations }, null, 2) + "\n";
}

function readText(value, what) {
  if (typeof value !== "string") throw new Error(`${what} is not a text`);
  return value;
}

function readTime(value) {
  return Number.isSafeInteger(value) && value > 0 ? value : Date.now();
}

export function readSettings(value) {
  const settings = {};
  if (value === null || typeof value !== "object") return settings;
  for (const [name, { min, max, isInteger }] of Object.entries(kSettings)) {
    const number = value[name];
    if (typeof number !== "number" || !(number >= min && number <= max)) continue;
    if (!isInteger || Number.isSafeInteger(number)) settings[name] = number;
  }
  if (Array.isArray(value.stop)) {
    const stop = value.stop.filter((text) => typeof text === "string" && text !== "").slice(0, kMaxStops);
    if (stop.length > 0) settings.stop = stop;
  }
  return settings;
}

// Ids become part of addresses and of names in the store.
function readId(value, what) {
  if (typeof value !== "string" || !/^[0-9a-z-]{1,64}$/i.test(value)) throw new Error(`${what} has no valid id`);
  return value;
}

function readFigures(value) {
  if (value === null || typeof value !== "object") return null;
  const names = ["tokens", "promptTokens", "firstMs", "totalMs"];
  return Object.fromEntries(names.map((name) => [name, Number.isFinite(value[name]) ? value[name] : 0]));
}

function readMessage(value, seen, what) {
  if (value === null || typeof value !== "object") throw new Error(`${what} is not an object`);
  const id = readId(value.id, what);
  if (seen.has(id)) throw new Error(`${what} has the id of another message`);
  // A parent comes before its children, so that there is no cycle.
  if (value.parent !== null && !seen.has(value.parent)) throw new Error(`${what} follows a message that is missing`);
  if (value.role !== "user" && value.role !== "assistant") throw new Error(`${what} has no valid role`);
  seen.add(id);
  const optional = (name) => value[name] === undefined ? "" : readText(value[name], `${name} of ${what}`);
  return { id, parent: value.parent, role: value.role, content: readText(value.content, `content of ${what}`),
           reasoning: optional("reasoning"), model: optional("model"), created: readTime(value.created),
           end: optional("end") || (value.role === "assistant" ? "stopped" : ""), error: optional("error"),
           figures: readFigures(value.figures) };
}

function readConversation(value, what) {
  if (value === null || typeof value !== "object" || !Array.isArray(value.messages)) {
    throw new Error(`${what} has no list of messages`);
  }
  const seen = new Set();
  const messages = value.messages.map(
    (message, index) => readMessage(message, seen, `message ${index + 1} of ${what}`));
  const leaf = seen.has(value.leaf) ? value.leaf : messages[messages.length - 1]?.id ?? null;
  return { id: readId(value.id, what), title: readText(value.title, `title of ${what}`).slice(0, 500),
           hasOwnTitle: value.hasOwnTitle === true, created: readTime(value.created),
           updated: readTime(value.updated), model: readText(value.model ?? "", `model of ${what}`),
           system: readText(value.system ?? "", `system of ${what}`), settings: readSettings(value.settings),
           leaf, messages };
}

// Reads what toJson wrote. Throws an Error whose message says what is wrong.
export function fromJson(text) {
  if (text.length > kMaxImportBytes) throw new Error("the file is larger than 64 MiB");
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("the file is not JSON");
  }
  if (file?.format !== kFormat || file.version !== 1 || !Array.isArray(file.conversations)) {
    throw new Error(`the file is not an export of this page: expected "format": "${kFormat}", "version": 1`);
  }
  return file.conversations.map((value, index) => readConversation(value, `conversation ${index + 1}`));
}
