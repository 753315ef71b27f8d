// SPDX-License-Identifier: MIT
//
// The page: shows one conversation, the list of all, and what the user can do with them.

import { addMessage, fromJson, makeId, newConversation, readSettings, shownMessages,
         showVersion, toJson, toMarkdown, versionsOf } from "./conversation.js";
import { announce, downloadText, element, icon } from "./dom.js";
import { Generation } from "./generation.js";
import { MessageView } from "./message_view.js";
import { showNotice } from "./notices.js";
import { getModels, ServerError } from "./server.js";
import { SettingsDialog } from "./settings_dialog.js";
import { StatusPanel } from "./status_panel.js";
import { openStore, readChoices, readDraft, takeLastText, writeChoices, writeDraft, writeLastText } from "./store.js";

const kSuggestions = [
  "Explain how a hash table finds a key",
  "Write a shell script that lists the ten largest files",
  "Suggest a plan for learning to read music",
];
const kAtEndPx = 60;

const byId = (id) => document.getElementById(id);

class Page {
  constructor(store) {
    this.store = store;
    this.summaries = [];
    this.models = [];
    this.generations = new Map();  // by the id of their conversation
    this.views = [];
    this.followsText = true;       // the last line stays in sight
    this.conversation = null;
    this.isNew = true;             // the conversation is not in the store yet
    this.channel = new BroadcastChannel("qsf");
    this.channel.addEventListener("message", ({ data }) => this.changedElsewhere(data.id));
    this.settings = new SettingsDialog((changes) => this.saveSettings(changes));
    this.status = new StatusPanel(byId("status-state"), byId("status-body"));
  }

  get generation() {
    return this.generations.get(this.conversation.id) ?? null;
  }

  async start() {
    this.begin();
    await this.refreshList();
    await this.openFromAddress();
    this.status.start(() => this.loadModels());
    this.loadModels();
    if (!this.store.isKept) {
      showNotice("This browser keeps nothing for this page: conversations end when it is closed. Export what you want to keep.");
    }
  }

  // Conversations.

  begin() {
    const { model, system, settings } = readChoices();
    const text = (value) => typeof value === "string" ? value : "";
    this.conversation = newConversation({ model: text(model), system: text(system), settings: readSettings(settings) });
    this.isNew = true;
  }

  async openFromAddress() {
    const id = /^#c=([0-9a-z-]{1,64})$/i.exec(location.hash)?.[1];
    if (!id) {
      if (!this.isNew) this.begin();
    } else if (id !== this.conversation.id) {
      const found = this.generations.get(id)?.conversation ?? await this.read(id);
      if (found) {
        this.conversation = found;
        this.isNew = false;
      } else {
        history.replaceState(null, "", location.pathname);
        this.begin();
        showNotice("This conversation is not in this browser.");
      }
    }
    this.followsText = true;
    this.show();
  }

  async read(id) {
    try {
      const conversation = await this.store.read(id);
      // An answer without an end was being written when its page closed.
      let isLonger = false;
      for (const message of conversation?.messages ?? []) {
        if (message.role !== "assistant" || message.end !== "") continue;
        message.end = "stopped";
        if (takeLastText(message)) isLonger = true;
      }
      if (isLonger) await this.store.write(conversation);
      return conversation;
    } catch (error) {
      showNotice(`The conversation could not be read: ${error.message}`, { kind: "error" });
      return null;
    }
  }

  async save(conversation) {
    try {
      await this.store.write(conversation);
    } catch (error) {
      showNotice(`The browser could not keep the conversation: ${error?.message ?? "no reason given"}. Export it to keep it.`,
                 { kind: "error" });
      return false;
    }
    this.channel.postMessage({ id: conversation.id });
    if (conversation === this.conversation && this.isNew) {
      this.isNew = false;
      history.pushState(null, "", "#c=" + conversation.id);
    }
    await this.refreshList();
    return true;
  }

  async changedElsewhere(id) {
    await this.refreshList();
    if (id !== this.conversation.id || this.generation) return;
    const found = await this.read(id);
    if (found && id === this.conversation.id && !this.generation) {
      this.conversation = found;
      this.showHead();
      this.showMessages();
    }
  }

  async refreshList() {
    this.summaries = await this.store.list().catch(() => this.summaries);
    this.summaries.sort((a, b) => b.updated - a.updated);
    this.showList();
  }

  async remove() {
    const { conversation } = this;
    this.generation?.stop();
    await this.store.remove(conversation.id);
    this.channel.postMessage({ id: conversation.id });
    history.pushState(null, "", location.pathname);
    this.begin();
    await this.refreshList();
    this.show();
    const undo = async () => {
      await this.save(conversation);
      location.hash = "#c=" + conversation.id;
    };
    showNotice(`Deleted "${conversation.title}".`, { action: { label: "Undo", run: undo }, seconds: 20 });
  }

  async importFile(file) {
    let conversations;
    try {
      conversations = fromJson(await file.text());
    } catch (error) {
      showNotice(`Nothing was imported: ${error.message}.`, { kind: "error" });
      return;
    }
    const taken = new Set(this.summaries.map(({ id }) => id));
    for (const conversation of conversations) {
      if (taken.has(conversation.id)) conversation.id = makeId();
      taken.add(conversation.id);
      if (!await this.save(conversation)) return;
    }
    const n = conversations.length;
    showNotice(`Imported ${n} conversation${n === 1 ? "" : "s"}.`, { seconds: 10 });
    if (n > 0) location.hash = "#c=" + conversations[0].id;
  }

  async exportAll() {
    const conversations = [];
    for (const { id } of this.summaries) conversations.push(await this.read(id));
    downloadText("conversations.json", "application/json", toJson(conversations.filter(Boolean)));
  }

  exportShown(suffix, type, text) {
    const name = this.conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "conversation";
    downloadText(name.slice(0, 60) + suffix, type, text);
  }

  // Questions and answers.

  async send(text) {
    const { conversation } = this;
    if (this.generation || text.trim() === "" || !this.hasModel()) return;
    const question = addMessage(conversation, conversation.leaf, "user", text);
    const draft = this.draftName;
    byId("question").value = "";
    if (await this.keep(conversation)) writeDraft(draft, "");
    this.answer(conversation, question.id);
  }

  // Saves; true also where nothing can be kept, because then a draft helps no more.
  async keep(conversation) {
    return await this.save(conversation) || !this.store.isKept;
  }

  hasModel() {
    if (byId("model").value !== "") return true;
    showNotice("The server has named no model yet.", { kind: "error", action: { label: "Ask again", run: () => this.loadModels() } });
    return false;
  }

  async editQuestion(message, text) {
    const { conversation } = this;
    if (this.generation || !this.hasModel()) return;
    const question = addMessage(conversation, message.parent, "user", text);
    if (await this.keep(conversation)) writeDraft("edit." + message.id, "");
    this.answer(conversation, question.id);
  }

  repeat(message) {
    if (!this.generation && this.hasModel()) this.answer(this.conversation, message.parent);
  }

  answer(conversation, parent) {
    const message = addMessage(conversation, parent, "assistant", "");
    message.model = byId("model").value;
    conversation.model = message.model;
    const isShown = () => this.conversation === conversation;
    const view = () => isShown() ? this.views.find((other) => other.message === message) : undefined;
    const generation = new Generation(conversation, message, {
      onSave: () => this.save(conversation),
      onText: () => {
        view()?.showText(true);
        this.follow();
      },
      onEnd: (error) => {
        clearInterval(waiting);
        this.generations.delete(conversation.id);
        this.showAnswerEnd(view(), error);
        this.showList();
      },
    });
    const waiting = setInterval(() => {
      view()?.showWaiting(generation.isOpen ? "Reading the conversation" : this.status.waitingText());
    }, 1000);
    this.generations.set(conversation.id, generation);
    this.followsText = true;
    if (isShown()) this.show(false);
    announce("The answer begins.");
    generation.run();
  }

  showAnswerEnd(view, error) {
    if (view) {
      view.showText(true);
      view.showFoot();
      view.announceEnd();
      this.showComposer();
      this.follow();
    }
    if (error?.status === 401) this.askForKey(error);
    if (error?.retryAfter > 0) showNotice(`The server suggests to try again in ${error.retryAfter} s.`, { seconds: error.retryAfter });
  }

  askForKey(error) {
    showNotice(error.message, { kind: "error", action: { label: "Enter the API key",
      run: () => this.settings.open(this.conversation, "setting-key") } });
  }

  // Models and settings.

  async loadModels() {
    try {
      this.models = await getModels();
    } catch (error) {
      if (error.status === 401) this.askForKey(error);
      else if (error instanceof ServerError) showNotice(error.message, { kind: "error", action: { label: "Try again", run: () => this.loadModels() } });
      else throw error;
    }
    this.showModels();
  }

  saveSettings({ system, settings, keyChanged }) {
    Object.assign(this.conversation, { system, settings });
    this.saveChoices();
    if (keyChanged) {
      this.loadModels();
      this.status.poll();
    }
  }

  saveChoices() {
    const { model, system, settings } = this.conversation;
    writeChoices({ model, system, settings });
    if (!this.isNew) this.save(this.conversation);
  }

  // What is seen.

  show(focusQuestion = true) {
    this.showHead();
    this.showModels();
    this.showList();
    this.showMessages();
    const question = byId("question");
    if (question.value !== readDraft(this.draftName)) question.value = readDraft(this.draftName);
    this.fitQuestion();
    this.showComposer();
    this.closeSidebar();
    if (focusQuestion && matchMedia("(hover: hover)").matches) question.focus();
  }

  get draftName() {
    return this.isNew ? "new" : this.conversation.id;
  }

  showHead() {
    const { title } = this.conversation;
    byId("title").textContent = title;
    document.title = this.isNew ? "QSF" : `${title} - QSF`;
    for (const id of ["rename", "export-markdown", "export-json", "delete"]) byId(id).disabled = this.isNew;
  }

  showModels() {
    const { conversation, models } = this;
    const select = byId("model");
    const isKnown = models.includes(conversation.model);
    if (!isKnown && models.length > 0 && (this.isNew || models.length === 1)) conversation.model = models[0];
    const options = models.map((id) => element("option", { value: id }, id));
    if (conversation.model !== "" && !models.includes(conversation.model)) {
      options.push(element("option", { value: conversation.model }, `${conversation.model} (not offered)`));
    }
    if (options.length === 0) options.push(element("option", { value: "" }, "No model"));
    select.replaceChildren(...options);
    select.value = conversation.model;
  }

  showList() {
    byId("conversation-list").replaceChildren(...this.summaries.map(({ id, title }) => {
      const link = element("a", { href: "#c=" + id, title, "aria-current": id === this.conversation.id ? "page" : undefined }, title);
      if (this.generations.has(id)) link.append(element("span", { class: "writing-mark", role: "img", "aria-label": "being answered" }));
      return element("li", {}, link);
    }));
    byId("export-all").disabled = this.summaries.length === 0;
  }

  showMessages() {
    const messages = shownMessages(this.conversation);
    const handlers = {
      edit: (message, text) => this.editQuestion(message, text),
      repeat: (message) => this.repeat(message),
      show: (message) => {
        if (this.generation) return;
        showVersion(this.conversation, message);
        this.save(this.conversation);
        this.showMessages();
        this.views.find((view) => view.message === message)?.node.focus();
      },
    };
    this.views = messages.map((message) => new MessageView(message, versionsOf(this.conversation, message), handlers));
    byId("messages").replaceChildren(...this.views.map((view) => view.node));
    byId("empty").hidden = messages.length > 0;
    this.follow();
  }

  showComposer() {
    const isWriting = this.generation !== null;
    const send = byId("send"), stop = byId("stop");
    const hadFocus = [send, stop].includes(document.activeElement);
    send.hidden = isWriting;
    stop.hidden = !isWriting;
    if (hadFocus) (isWriting ? stop : byId("question")).focus();
    document.body.classList.toggle("is-answering", isWriting);
  }

  follow() {
    const scroller = byId("scroller");
    if (this.followsText) scroller.scrollTop = scroller.scrollHeight;
    byId("jump").hidden = this.followsText;
  }

  fitQuestion() {
    const question = byId("question");
    question.style.height = "auto";
    question.style.height = `${Math.min(question.scrollHeight, innerHeight * 0.4)}px`;
  }

  openSidebar() {
    document.body.classList.add("sidebar-open");
    byId("open-sidebar").setAttribute("aria-expanded", "true");
    byId("backdrop").hidden = false;
    document.querySelector("main").inert = true;
    byId("close-sidebar").focus();
  }

  closeSidebar() {
    if (!document.body.classList.contains("sidebar-open")) return;
    document.body.classList.remove("sidebar-open");
    byId("open-sidebar").setAttribute("aria-expanded", "false");
    byId("backdrop").hidden = true;
    document.querySelector("main").inert = false;
    byId("open-sidebar").focus();
  }

  // Actions.

  listen() {
    const on = (id, type, action) => byId(id).addEventListener(type, action);
    addEventListener("popstate", () => this.openFromAddress());
    on("new-conversation", "click", () => {
      if (!this.isNew) history.pushState(null, "", location.pathname);
      this.openFromAddress();
    });
    on("composer", "submit", (event) => {
      event.preventDefault();
      this.send(byId("question").value);
    });
    on("question", "input", () => {
      writeDraft(this.draftName, byId("question").value);
      this.fitQuestion();
    });
    on("question", "keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send(byId("question").value);
    });
    on("stop", "click", () => this.generation?.stop());
    on("jump", "click", () => {
      this.followsText = true;
      this.follow();
    });
    on("scroller", "scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = byId("scroller");
      this.followsText = scrollHeight - scrollTop - clientHeight < kAtEndPx;
      byId("jump").hidden = this.followsText;
    });
    on("model", "change", () => {
      this.conversation.model = byId("model").value;
      this.saveChoices();
    });
    on("open-settings", "click", () => this.settings.open(this.conversation));
    on("open-sidebar", "click", () => this.openSidebar());
    on("close-sidebar", "click", () => this.closeSidebar());
    on("backdrop", "click", () => this.closeSidebar());
    on("import", "click", () => byId("import-file").click());
    on("import-file", "change", async () => {
      for (const file of byId("import-file").files) await this.importFile(file);
      byId("import-file").value = "";
    });
    on("export-all", "click", () => this.exportAll());
    this.listenToMenu(on);
    addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      if (byId("conversation-menu").open) this.closeMenu();
      else if (document.body.classList.contains("sidebar-open")) this.closeSidebar();
      else this.generation?.stop();
    });
    addEventListener("pagehide", () => {
      for (const { message } of this.generations.values()) writeLastText(message);
    });
  }

  closeMenu() {
    byId("conversation-menu").open = false;
    byId("conversation-menu").querySelector("summary").focus();
  }

  listenToMenu(on) {
    const menu = byId("conversation-menu");
    document.addEventListener("click", (event) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
    const item = (id, action) => on(id, "click", () => {
      this.closeMenu();
      action();
    });
    item("rename", () => {
      byId("rename-title").value = this.conversation.title;
      byId("rename-dialog").showModal();
      byId("rename-title").select();
    });
    item("export-markdown", () => this.exportShown(".md", "text/markdown", toMarkdown(this.conversation)));
    item("export-json", () => this.exportShown(".json", "application/json", toJson([this.conversation])));
    item("delete", () => this.remove());
    on("cancel-rename", "click", () => byId("rename-dialog").close());
    on("rename-form", "submit", (event) => {
      event.preventDefault();
      const title = byId("rename-title").value.trim();
      if (title === "") return;
      Object.assign(this.conversation, { title, hasOwnTitle: true });
      byId("rename-dialog").close();
      this.save(this.conversation);
      this.showHead();
    });
  }
}

function addIcons() {
  const icons = { "close-sidebar": "close", "open-sidebar": "menu", "open-settings": "settings",
                  "close-settings": "close", send: "send", stop: "stop", jump: "down", "new-conversation": "add" };
  for (const [id, name] of Object.entries(icons)) byId(id).prepend(icon(name));
  document.querySelector("#conversation-menu summary").append(icon("more"));
  byId("suggestions").append(...kSuggestions.map((text) => element("li", {}, element("button", { type: "button", click: () => {
    const question = byId("question");
    question.value = text;
    question.dispatchEvent(new Event("input"));
    question.focus();
  } }, text))));
}

addIcons();
const page = new Page(await openStore());
page.listen();
await page.start();
