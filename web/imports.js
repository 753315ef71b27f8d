// SPDX-License-Identifier: MIT
//
// What the module asks JavaScript for, at link time: files (src/io/file_ops_wasm.cc), by the `files`
// of the options that the module is made with, and never more memory than the page gave it.
/* global mergeInto, LibraryManager, Module, HEAPU8, UTF8ToString */

mergeInto(LibraryManager.library, {
  qsf_js_open: function (path) {
    return Module["files"].open(UTF8ToString(path));
  },
  qsf_js_size: function (handle) {
    return Module["files"].size(handle);
  },
  qsf_js_read: function (handle, to, nBytes, offset) {
    return Module["files"].read(handle, HEAPU8.subarray(to, to + nBytes), offset);
  },
  qsf_js_close: function (handle) {
    return Module["files"].close(handle);
  },
  emscripten_resize_heap: function () {
    return 0;
  },
});
