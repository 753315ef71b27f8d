#!/usr/bin/env node
// SPDX-License-Identifier: MIT
//
// A server of files with ranges of bytes, for tests and for trying the demo page:
//
//   serve.js PORT FOLDER [FOLDER ...]
//
// A path is looked for in every folder, in order. Headers isolate the page.
"use strict";

const crypto = require("node:crypto");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");

const kTypes = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"};

function find(folders, url) {
  const wanted = decodeURIComponent(new URL(url, "http://localhost").pathname);
  for (const folder of folders) {
    const file = path.join(folder, path.normalize(wanted));
    const about = fs.statSync(file, {throwIfNoEntry: false});
    if (about?.isFile()) return {file, about};
  }
  return null;
}

function answer(folders, request, response) {
  const found = find(folders, request.url);
  if (found === null) return response.writeHead(404).end();
  const {file, about} = found;
  const tag = '"' + crypto.createHash("sha256").update(`${file} ${about.size} ${about.mtimeMs}`)
    .digest("hex").slice(0, 32) + '"';
  const headers = {"ETag": tag, "Accept-Ranges": "bytes", "Cache-Control": "no-cache",
                   "Content-Type": kTypes[path.extname(file)] ?? "application/octet-stream",
                   "Cross-Origin-Opener-Policy": "same-origin",
                   "Cross-Origin-Embedder-Policy": "require-corp"};
  const match = request.headers["if-match"];
  if (match !== undefined && match !== tag) return response.writeHead(412, headers).end();
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  if (range === null) {
    response.writeHead(200, {...headers, "Content-Length": about.size});
    return fs.createReadStream(file).pipe(response);
  }
  const start = Number(range[1]);
  const end = Math.min(range[2] === "" ? Infinity : Number(range[2]), about.size - 1);
  if (start > end) {
    return response.writeHead(416, {...headers, "Content-Range": `bytes */${about.size}`}).end();
  }
  response.writeHead(206, {...headers, "Content-Length": end - start + 1,
                           "Content-Range": `bytes ${start}-${end}/${about.size}`});
  return fs.createReadStream(file, {start, end}).pipe(response);
}

// Returns the server, listening at a port of this machine; 0: any.
function serve(port, folders) {
  const server = http.createServer((request, response) => answer(folders, request, response));
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}

module.exports = {serve};
if (require.main === module) {
  if (process.argv.length < 4) {
    console.error("usage: serve.js PORT FOLDER [FOLDER ...]");
    process.exit(2);
  }
  serve(Number(process.argv[2]), process.argv.slice(3)).then((server) => {
    console.log(`http://127.0.0.1:${server.address().port}/demo.html`);
  });
}
