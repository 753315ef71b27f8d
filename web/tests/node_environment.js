// SPDX-License-Identifier: MIT
//
// For a test program in WebAssembly (cmake/targets.cmake): the variables of node's environment, and
// the module, which Emscripten 3.1.6 would fetch where node has a fetch of its own.
/* global Module, ENV */
Module["preRun"] = [() => Object.assign(ENV, process.env)];
Module["wasmBinary"] = require("node:fs").readFileSync(__filename.replace(/\.js$/, ".wasm"));
