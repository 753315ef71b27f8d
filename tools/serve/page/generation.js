// SPDX-License-Identifier: MIT
//
// One answer while it is written: the request, what arrived of it, and its time.

import { requestBody } from "./conversation.js";
import { streamChat } from "./server.js";

const kSaveMs = 1000;

// Callbacks: onText() when text arrived, at most once a frame; onSave() at once, every second and at
// the end; onEnd(error) once, with the ServerError that ended it or null.
export class Generation {
  constructor(conversation, message, callbacks) {
    this.conversation = conversation;
    this.message = message;
    this.callbacks = callbacks;
    this.controller = new AbortController();
    this.isOpen = false;  // the server has admitted the request
    this.frame = 0;
  }

  stop() {
    this.controller.abort();
  }

  async run() {
    const { conversation, message, callbacks } = this;
    const begun = performance.now();
    let firstMs = 0;
    let nPieces = 0;
    let usage = null;
    let failure = null;
    callbacks.onSave();
    const saving = setInterval(() => callbacks.onSave(), kSaveMs);
    try {
      const body = requestBody(conversation, message.model, message.parent);
      const result = await streamChat(body, this.controller.signal, {
        onOpen: () => { this.isOpen = true; },
        onPiece: ({ content, reasoning }) => {
          firstMs ||= performance.now() - begun;
          nPieces++;
          message.content += content;
          message.reasoning += reasoning;
          this.frame ||= requestAnimationFrame(() => this.showText());
        },
      });
      message.end = result.end || "stop";
      usage = result.usage;
    } catch (error) {
      if (this.controller.signal.aborted) {
        message.end = "stopped";
      } else {
        failure = error;
        message.end = "error";
        message.error = error.message;
      }
    }
    clearInterval(saving);
    cancelAnimationFrame(this.frame);
    // Without usage, as after a stop, pieces stand for tokens.
    const tokens = Number.isSafeInteger(usage?.completion_tokens) ? usage.completion_tokens : nPieces;
    const promptTokens = Number.isSafeInteger(usage?.prompt_tokens) ? usage.prompt_tokens : 0;
    message.figures = { tokens, promptTokens, firstMs, totalMs: performance.now() - begun };
    callbacks.onSave();
    callbacks.onEnd(failure);
  }

  showText() {
    this.frame = 0;
    this.callbacks.onText();
  }
}
