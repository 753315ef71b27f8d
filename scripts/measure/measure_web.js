#!/usr/bin/env node
// SPDX-License-Identifier: MIT
//
// Measures the engine in node beside the native SSE4.2 kernels, one thread each, in turns.
//
//   measure_web.js MODEL.qsf [--web dist/web] [--tool build/release/bin/qsf] [--megabytes 1000]
//                  [--tokens 200] [--runs 5] [--browser yes]
//
// Every run is a process of its own that opens the model and writes a greedy text without
// speculation; the rate is that of the tokens after the first. With fewer --megabytes than the
// model has, node reads weights in every pass; the native program has them in memory all the same.
// `warm` is the rate of a second text of the same process: by then node has compiled the module.
// With --browser yes, headless Chromium writes instead, from a server on this machine: by HTTP, by
// HTTP while what was read is kept in private files, and from these; `first` is the time from open()
// to the first text. Prints medians and ranges. Needs dist/web (scripts/package/make_web).
"use strict";

const {execFileSync, spawnSync} = require("node:child_process");
const path = require("node:path");

const kPrompt = "Once upon a time";
const kRoot = path.resolve(__dirname, "../..");
const kDefaults = {web: path.join(kRoot, "dist/web"), tool: path.join(kRoot, "build/release/bin/qsf"),
                   megabytes: "1000", tokens: "200", runs: "5", browser: "no"};

function fail(message) {
  console.error(`measure_web.js: ${message}`);
  process.exit(2);
}

function parse(words) {
  const options = {...kDefaults};
  for (let i = 0; i < words.length; ++i) {
    if (!words[i].startsWith("--")) {
      options.model = words[i];
    } else if (words[i].slice(2) in kDefaults && i + 1 < words.length) {
      options[words[i].slice(2)] = words[++i];
    } else {
      fail(`${words[i]}: unknown option, or without a value; see the head of this file`);
    }
  }
  if (options.model === undefined) fail("no MODEL.qsf; see the head of this file");
  for (const name of ["megabytes", "tokens", "runs"]) {
    if (!(Number(options[name]) >= 1)) fail(`--${name} ${options[name]}: expected a number of 1 or more`);
  }
  return options;
}

// Runs in a process of its own: prints the rates of two texts.
async function writeTexts(options) {
  const qsf = require(path.resolve(options.web, "qsf.js"));
  const model = await qsf.open(path.resolve(options.model), {megabytes: Number(options.megabytes), context: 1024});
  const rates = [];
  for (const prompt of [kPrompt, `${kPrompt},`]) {
    const stream = model.generate(prompt, {maxTokens: Number(options.tokens), temperature: 0});
    for (;;) {
      const {value, done} = await stream.next();
      if (!done) continue;
      if (!(value.tokens > 1)) throw new Error(`only ${value.tokens} tokens (${value.reason})`);
      rates.push((value.tokens - 1) / value.generateMs * 1e3);
      break;
    }
  }
  await model.close();
  console.log(rates.join(" "));
}

function rateOfTool(options) {
  const done = spawnSync(options.tool, ["run", options.model, kPrompt, "-n", options.tokens, "-t", "1", "-c", "1024",
                                        "--temperature", "0", "--speculate", "off"],
                         {env: {...process.env, QSF_ISA: "sse42"}, encoding: "utf8"});
  const told = /generated \d+ tokens, ([\d.]+) tokens\/s/.exec(done.stderr ?? "");
  if (done.status !== 0 || told === null) fail(`${options.tool}: ${done.error ?? done.stderr}`);
  return Number(told[1]);
}

function rangeOf(rates) {
  const sorted = [...rates].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {median, least: sorted[0], most: sorted.at(-1)};
}

function measure(options) {
  const rates = {native: [], node: [], warm: []};
  for (let i = 0; i < Number(options.runs); ++i) {
    rates.native.push(rateOfTool(options));
    const words = Object.keys(kDefaults).flatMap((name) => [`--${name}`, options[name]]);
    const out = execFileSync(process.execPath, [__filename, options.model, ...words],
                             {env: {...process.env, QSF_MEASURE_WEB: "write"}, encoding: "utf8"});
    const [node, warm] = out.trim().split(" ").map(Number);
    rates.node.push(node);
    rates.warm.push(warm);
  }
  const native = rangeOf(rates.native).median;
  for (const [name, of] of Object.entries(rates)) {
    const {median, least, most} = rangeOf(of);
    console.log(`${name.padEnd(7)} ${median.toFixed(1)} tokens/s (${least.toFixed(1)} to ${most.toFixed(1)}), ` +
                `${(100 * median / native).toFixed(0)} % of native`);
  }
}

// A browser of its own for every run: nothing is kept from the one before.
async function measureBrowser(options) {
  const {Page, writes} = require(path.join(kRoot, "web/tests/browser_page.js"));
  const {serve} = require(path.resolve(options.web, "serve.js"));
  const server = await serve(0, [path.resolve(options.web), path.dirname(path.resolve(options.model))]);
  const results = {http: [], keeping: [], kept: []};
  for (let i = 0; i < Number(options.runs); ++i) {
    const page = await Page.open(`http://127.0.0.1:${server.address().port}/demo.html`);
    for (const name of Object.keys(results)) {
      const how = {megabytes: Number(options.megabytes), context: 1024, cache: name !== "http"};
      results[name].push(await page.run(writes(path.basename(options.model), how, Number(options.tokens))));
    }
    await page.close();
  }
  server.closeAllConnections();
  server.close();
  for (const [name, of] of Object.entries(results)) {
    const rate = rangeOf(of.map(({tokens, generateMs}) => (tokens - 1) / generateMs * 1e3));
    const first = rangeOf(of.map((result) => result.first));
    const {httpBytes, keptBytes, memoryBytes} = of[0].info;
    console.log(`${name.padEnd(8)} ${rate.median.toFixed(2)} tokens/s (${rate.least.toFixed(2)} to ` +
                `${rate.most.toFixed(2)}), first ${first.median.toFixed(0)} ms (${first.least.toFixed(0)} to ` +
                `${first.most.toFixed(0)}); ${(httpBytes / 1e6).toFixed(1)} MB by HTTP, ` +
                `${(keptBytes / 1e6).toFixed(1)} MB from private files, memory ${(memoryBytes / 1e6).toFixed(1)} MB`);
  }
}

const options = parse(process.argv.slice(2));
if (process.env.QSF_MEASURE_WEB === "write") {
  writeTexts(options).catch((error) => fail(error.message));
} else if (options.browser === "yes") {
  measureBrowser(options).catch((error) => fail(error.message));
} else {
  measure(options);
}
