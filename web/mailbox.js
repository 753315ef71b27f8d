// SPDX-License-Identifier: MIT
//
// The mailbox by which threads of the engine ask the Worker that reads (reader.js). It lies in their
// memory; src/io/page_reader_wasm.cc has its layout and the other side.
"use strict";

(function (exports) {
  const kAsked = 1;
  const kAnswered = 2;
  const [kAskedWord, kAnsweredWord, kStopWord, kSlotsWord] = [0, 1, 2, 3];
  const kHeadBytes = 16;
  const kSlotBytes = 40;
  const kTextBytes = 1024;

  class Mailbox {
    constructor(memory, at) {
      this.bytes = new Uint8Array(memory.buffer);
      this.words = new Int32Array(memory.buffer);
      this.doubles = new Float64Array(memory.buffer);
      this.at = at;
      this.nSlots = this.words[at / 4 + kSlotsWord];
    }

    // Answers calls by `files` until it is told to stop.
    async answer(files) {
      const open = files.openLater ? "openLater" : "open";
      const read = files.readLater ? "readLater" : "read";
      const calls = [null, (slot) => files[open](this.#text(slot.address)), (slot) => files.size(slot.handle),
                     (slot) => files[read](slot.handle, this.bytes.subarray(slot.address, slot.address + slot.nBytes),
                                           slot.offset),
                     (slot) => files.close(slot.handle)];
      const asked = this.at / 4 + kAskedWord;
      this.#describe(files);
      for (;;) {
        const seen = Atomics.load(this.words, asked);
        const slot = this.#oldest();
        if (slot === null) {
          if (Atomics.load(this.words, this.at / 4 + kStopWord) !== 0) return;
          Atomics.wait(this.words, asked, seen);
          continue;
        }
        const result = await calls[slot.call](slot);
        if (result < 0) this.#put(1, files.takeError());
        this.#describe(files);
        this.doubles[(slot.at + 32) / 8] = result;
        Atomics.store(this.words, slot.at / 4, kAnswered);
        Atomics.add(this.words, this.at / 4 + kAnsweredWord, 1);
        Atomics.notify(this.words, this.at / 4 + kAnsweredWord);
      }
    }

    stop() {
      Atomics.store(this.words, this.at / 4 + kStopWord, 1);
      Atomics.add(this.words, this.at / 4 + kAskedWord, 1);
      Atomics.notify(this.words, this.at / 4 + kAskedWord);
    }

    description() {
      return JSON.parse(this.#text(this.#textAt(0)));
    }

    // The reason of the last failure, once.
    takeError() {
      const error = this.#text(this.#textAt(1));
      this.#put(1, "");
      return error;
    }

    #oldest() {
      let oldest = null;
      for (let i = 0; i < this.nSlots; ++i) {
        const at = this.at + kHeadBytes + i * kSlotBytes;
        if (Atomics.load(this.words, at / 4) !== kAsked) continue;
        const [call, number, handle, address, nBytes] = this.words.subarray(at / 4 + 1, at / 4 + 6);
        if (oldest !== null && ((number - oldest.number) | 0) > 0) continue;
        oldest = {at, call, number, handle, address: address >>> 0, nBytes, offset: this.doubles[(at + 24) / 8]};
      }
      return oldest;
    }

    #describe(files) {
      const {cacheNote = "", ...rest} = files.describe?.() ?? {};
      this.#put(0, JSON.stringify({...rest, cacheNote: cacheNote.slice(0, 200)}));
    }

    #textAt(which) {
      return this.at + kHeadBytes + this.nSlots * kSlotBytes + which * kTextBytes;
    }

    #text(begin) {
      return new TextDecoder().decode(this.bytes.slice(begin, this.bytes.indexOf(0, begin)));
    }

    #put(which, text) {
      const at = this.#textAt(which);
      const bytes = new TextEncoder().encode(text).subarray(0, kTextBytes - 1);
      this.bytes.set(bytes, at);
      this.bytes[at + bytes.length] = 0;
    }
  }

  exports.Mailbox = Mailbox;
})(typeof module === "object" ? module.exports : (globalThis.qsf ??= {}));
