// SPDX-License-Identifier: MIT
//
// The dialog of settings: system prompt, sampling, API key. A value that is out of range is named
// beside its field, and nothing is saved until all are right.

import { kMaxStops, kSettings } from "./conversation.js";
import { readKey, writeKey } from "./store.js";

const byId = (id) => document.getElementById(id);

function stopToLine(text) {
  return text.replace(/\\/g, "\\\\").replace(/\n/g, "\\n");
}

function lineToStop(line) {
  return line.replace(/\\(n|\\)/g, (_, char) => char === "n" ? "\n" : "\\");
}

function showError(name, text) {
  byId("error-" + name).textContent = text;
  byId("setting-" + name).setAttribute("aria-invalid", String(text !== ""));
}

// Reads a field of a number. Returns {value} (undefined when empty) or {error}.
function readNumber(name) {
  const { min, max, isInteger } = kSettings[name];
  const text = byId("setting-" + name).value.trim().replace(",", ".");
  if (text === "") return {};
  const value = Number(text);
  const isValid = /^\d*\.?\d+$|^\d+\.$/.test(text) && value >= min && value <= max && (!isInteger || Number.isSafeInteger(value));
  const kind = isInteger ? "a whole number" : "a number";
  return isValid ? { value } : { error: `Write ${kind} from ${min} to ${max}.` };
}

export class SettingsDialog {
  // `onSave` receives {system, settings, keyChanged}.
  constructor(onSave) {
    this.dialog = byId("settings");
    this.onSave = onSave;
    byId("close-settings").addEventListener("click", () => this.dialog.close());
    byId("reset-settings").addEventListener("click", () => this.fill({}));
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    byId("settings-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.save();
    });
  }

  open({ system, settings }, field = "setting-system") {
    byId("setting-system").value = system;
    byId("setting-key").value = readKey();
    this.fill(settings);
    this.dialog.showModal();
    byId(field).focus();
  }

  fill(settings) {
    for (const name of Object.keys(kSettings)) {
      byId("setting-" + name).value = settings[name] ?? "";
      showError(name, "");
    }
    byId("setting-stop").value = (settings.stop ?? []).map(stopToLine).join("\n");
    showError("stop", "");
  }

  save() {
    const settings = {};
    let firstWrong = null;
    for (const name of Object.keys(kSettings)) {
      const { value, error = "" } = readNumber(name);
      showError(name, error);
      if (error) firstWrong ??= byId("setting-" + name);
      else if (value !== undefined) settings[name] = value;
    }
    const stop = byId("setting-stop").value.split("\n").filter((line) => line !== "").map(lineToStop);
    const stopError = stop.length > kMaxStops ? `These are ${stop.length} texts; at most ${kMaxStops} are possible.` : "";
    showError("stop", stopError);
    if (stopError) firstWrong ??= byId("setting-stop");
    else if (stop.length > 0) settings.stop = stop;
    if (firstWrong) {
      firstWrong.focus();
      return;
    }
    const key = byId("setting-key").value.trim();
    const keyChanged = key !== readKey();
    writeKey(key);
    this.dialog.close();
    this.onSave({ system: byId("setting-system").value, settings, keyChanged });
  }
}
