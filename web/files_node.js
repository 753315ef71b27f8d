// SPDX-License-Identifier: MIT
//
// Files of the machine, for the engine under node.
"use strict";

const fs = require("node:fs");

const kNoEntry = -44;  // Emscripten's ENOENT and EIO
const kIo = -29;

class NodeFiles {
  #error = "";

  async prepare() {}

  open(path) {
    return this.#tried(() => fs.openSync(path, "r"));
  }

  size(handle) {
    return this.#tried(() => fs.fstatSync(handle).size);
  }

  read(handle, to, offset) {
    return this.#tried(() => fs.readSync(handle, to, 0, to.length, offset));
  }

  close(handle) {
    return this.#tried(() => (fs.closeSync(handle), 0));
  }

  // The reason of the last failure, once.
  takeError() {
    const error = this.#error;
    this.#error = "";
    return error;
  }

  #tried(call) {
    try {
      return call();
    } catch (error) {
      this.#error = error.message;
      return error.code === "ENOENT" ? kNoEntry : kIo;
    }
  }
}

module.exports = {NodeFiles};
