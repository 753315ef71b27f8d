// SPDX-License-Identifier: MIT
//
// Conversations, drafts and choices that the browser keeps. Conversations are in IndexedDB, a record
// each and a summary each; where the browser keeps nothing, they are in memory until the page closes.
// Drafts are in localStorage, which is written at once. The API key ends with the tab.

const kDatabase = "qsf";
const kPrefix = "qsf.";

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function committed(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
}

function summaryOf({ id, title, updated }) {
  return { id, title, updated };
}

class MemoryStore {
  constructor() {
    this.isKept = false;
    this.conversations = new Map();
  }

  async list() {
    return Array.from(this.conversations.values(), summaryOf);
  }

  async read(id) {
    return this.conversations.get(id) ?? null;
  }

  async write(conversation) {
    this.conversations.set(conversation.id, structuredClone(conversation));
  }

  async remove(id) {
    this.conversations.delete(id);
  }
}

class DatabaseStore {
  constructor(database) {
    this.isKept = true;
    this.database = database;
  }

  list() {
    return done(this.database.transaction("summaries").objectStore("summaries").getAll());
  }

  async read(id) {
    return await done(this.database.transaction("conversations").objectStore("conversations").get(id)) ?? null;
  }

  change(action) {
    const transaction = this.database.transaction(["summaries", "conversations"], "readwrite");
    action(transaction.objectStore("summaries"), transaction.objectStore("conversations"));
    return committed(transaction);
  }

  write(conversation) {
    return this.change((summaries, conversations) => {
      summaries.put(summaryOf(conversation));
      conversations.put(conversation);
    });
  }

  remove(id) {
    return this.change((summaries, conversations) => {
      summaries.delete(id);
      conversations.delete(id);
    });
  }
}

export async function openStore() {
  try {
    const request = indexedDB.open(kDatabase, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("summaries", { keyPath: "id" });
      request.result.createObjectStore("conversations", { keyPath: "id" });
    };
    return new DatabaseStore(await done(request));
  } catch {
    return new MemoryStore();
  }
}

// One text by name, in localStorage or sessionStorage; both may be forbidden or full.
function readItem(storage, name) {
  try {
    return window[storage].getItem(kPrefix + name) ?? "";
  } catch {
    return "";
  }
}

function writeItem(storage, name, text) {
  try {
    if (text === "") window[storage].removeItem(kPrefix + name);
    else window[storage].setItem(kPrefix + name, text);
    return true;
  } catch {
    return false;
  }
}

export const readDraft = (name) => readItem("localStorage", "draft." + name);
export const writeDraft = (name, text) => writeItem("localStorage", "draft." + name, text);
export const readKey = () => readItem("sessionStorage", "key");
export const writeKey = (key) => writeItem("sessionStorage", "key", key);

// The text of an answer whose page is being closed: IndexedDB may not finish then.
export function writeLastText({ id, content, reasoning }) {
  writeDraft("answer." + id, JSON.stringify({ content, reasoning }));
}

// Puts what writeLastText kept into its message. Returns whether there was something.
export function takeLastText(message) {
  const text = readDraft("answer." + message.id);
  if (text === "") return false;
  writeDraft("answer." + message.id, "");
  const { content, reasoning } = JSON.parse(text);
  Object.assign(message, { content, reasoning });
  return true;
}

// What a new conversation begins with: {model, system, settings}.
export function readChoices() {
  try {
    const choices = JSON.parse(readItem("localStorage", "choices") || "{}");
    return choices !== null && typeof choices === "object" ? choices : {};
  } catch {
    return {};
  }
}

export function writeChoices(choices) {
  writeItem("localStorage", "choices", JSON.stringify(choices));
}
