// SPDX-License-Identifier: MIT
//
// Unit tests of the page's modules, run in the browser. Results are in window.results: a list of
// {name, error}, error "" where a test passed; null while they run.

import { addMessage, fromJson, newConversation, readSettings, requestMessages, shownMessages, showVersion,
         toJson, toMarkdown, versionsOf } from "../page/conversation.js";
import { EventStreamParser } from "../page/event_stream.js";
import { MarkdownView, renderMarkdown } from "../page/markdown.js";
import { safeTarget } from "../page/markdown_inline.js";

const tests = [];
const test = (name, run) => tests.push({ name, run });

function equal(got, expected, what = "") {
  const [a, b] = [got, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what}: got ${a}, expected ${b}`);
}

function html(text) {
  const node = document.createElement("div");
  renderMarkdown(node, text);
  for (const extra of node.querySelectorAll(".code-head")) extra.remove();
  for (const one of node.querySelectorAll("*")) {
    for (const { name } of Array.from(one.attributes)) {
      if (!["href", "title", "start", "checked"].includes(name)) one.removeAttribute(name);
    }
  }
  return node.innerHTML.replaceAll("<div><pre>", "<pre>").replaceAll("</pre></div>", "</pre>");
}

// Event streams.

const kStream = "\ufeffdata: one\n\nevent: error\r\ndata: two\r\ndata:  three\r\n\r\n:\n\n: note\rdata\r\rid: 4\nretry: 5\n\n" +
  "data: {\"text\": \"gr\u00fc\u00df \u{1f600}\"}\n\nevent: lost\n\ndata:[DONE]\r\n\r\ndata: cut";
const kEvents = [{ type: "message", data: "one" }, { type: "error", data: "two\n three" }, { type: "message", data: "" },
                 { type: "message", data: "{\"text\": \"gr\u00fc\u00df \u{1f600}\"}" }, { type: "message", data: "[DONE]" }];

test("events of a whole stream", () => equal(new EventStreamParser().push(kStream), kEvents));

test("events of a stream that is cut at every byte", () => {
  const bytes = new TextEncoder().encode(kStream);
  for (let first = 0; first <= bytes.length; first++) {
    for (const second of [first, Math.min(first + 1, bytes.length), Math.min(first + 2, bytes.length), bytes.length]) {
      const parser = new EventStreamParser();
      const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
      const events = [];
      for (const piece of [bytes.slice(0, first), bytes.slice(first, second), bytes.slice(second)]) {
        events.push(...parser.push(decoder.decode(piece, { stream: true })));
      }
      equal(events, kEvents, `cut at ${first} and ${second}`);
    }
  }
});

test("events of a stream that comes byte by byte", () => {
  const parser = new EventStreamParser();
  equal(Array.from(kStream).flatMap((char) => parser.push(char)), kEvents);
});

// Markdown.

const kDocuments = {
  "a\nb": "<p>a\nb</p>",
  "a  \nb\\\nc<br>d": "<p>a<br>b<br>c<br>d</p>",
  "# One #\n## Two\n####### no": "<h4>One</h4><h5>Two</h5><p>####### no</p>",
  "Title\n=====\ntext": "<h4>Title</h4><p>text</p>",
  "*a* **b** ***c*** _d_ __e__ ~~f~~": "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> <em>d</em> <strong>e</strong> <del>f</del></p>",
  "snake_case_name 2 * 3 * 4 **open": "<p>snake_case_name 2 * 3 * 4 **open</p>",
  "**a *b* c** *a **b***": "<p><strong>a <em>b</em> c</strong> <em>a <strong>b</strong></em></p>",
  "*foo**bar**baz* foo***bar***baz": "<p><em>foo<strong>bar</strong>baz</em> foo<em><strong>bar</strong></em>baz</p>",
  "`a*b*` ``c`d`` `` ` `` `open": "<p><code>a*b*</code> <code>c`d</code> <code>`</code> `open</p>",
  "\\*a\\* \\q &lt;b&gt; &amp; &#65;&#x42; &bogus; &#0;": "<p>*a* \\q &lt;b&gt; &amp; AB &amp;bogus; \ufffd</p>",
  "[a *b*](https://e.org/x \"T\") ![img](https://e.org/i.png)": "<p><a href=\"https://e.org/x\" title=\"T\">a <em>b</em></a> <a href=\"https://e.org/i.png\">img</a></p>",
  "[a](https://e.org/(b)c) [d](<https://e.org/e f>) [](mailto:a@b.c)": "<p><a href=\"https://e.org/(b)c\">a</a> <a href=\"https://e.org/e%20f\">d</a> <a href=\"mailto:a@b.c\">mailto:a@b.c</a></p>",
  "[a [b](https://e.org) c](https://f.org) [x] [y](": "<p>[a <a href=\"https://e.org/\">b</a> c](<a href=\"https://f.org/\">https://f.org</a>) [x] [y](</p>",
  "https://e.org/a_b_c). (see https://e.org/(x)) www.e.org, <https://e.org> <a@b.org> xhttps://e": "<p><a href=\"https://e.org/a_b_c\">https://e.org/a_b_c</a>). (see <a href=\"https://e.org/(x)\">https://e.org/(x)</a>) <a href=\"https://www.e.org/\">www.e.org</a>, <a href=\"https://e.org/\">https://e.org</a> <a href=\"mailto:a@b.org\">a@b.org</a> xhttps://e</p>",
  "- a\n- b\n  - c\n    - d\n- e": "<ul><li>a</li><li>b<ul><li>c<ul><li>d</li></ul></li></ul></li><li>e</li></ul>",
  "1. a\n  - b\n  - c\n2. d": "<ol><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ol>",
  "3) a\n4) b\n\n- c\n\n- d": "<ol start=\"3\"><li>a</li><li>b</li></ol><ul><li><p>c</p></li><li><p>d</p></li></ul>",
  "- a\n\n  more\n- b": "<ul><li><p>a</p><p>more</p></li><li><p>b</p></li></ul>",
  "- a\nlazy\n\nend": "<ul><li>a\nlazy</li></ul><p>end</p>",
  "- [x] a\n- [ ] b": "<ul><li><input>a</li><li><input>b</li></ul>",
  "1. a\n   ```sh\n   ls\n\n   cd\n   ```\n2. b": "<ol><li>a<pre><code>ls\n\ncd</code></pre></li><li>b</li></ol>",
  "- \n\n- b\n-\n  c": "<ul><li></li></ul><ul><li>b</li><li>c</li></ul>",
  "In\n1999. it was\n- a": "<p>In\n1999. it was</p><ul><li>a</li></ul>",
  "> a\n> > b\n>\n> - c\n\nd": "<blockquote><p>a</p><blockquote><p>b</p></blockquote><ul><li>c</li></ul></blockquote><p>d</p>",
  "a\n***\n- - -\nb": "<p>a</p><hr><hr><p>b</p>",
  "```js\nlet a = `b`;\n\n# no\n```\nend": "<pre><code>let a = `b`;\n\n# no</code></pre><p>end</p>",
  "~~~~\n```\n~~~\n~~~~": "<pre><code>```\n~~~</code></pre>",
  "```\nopen *a*": "<pre><code>open *a*</code></pre>",
  "a\n\n    code\n      more\n\n    end\n\nb": "<p>a</p><pre><code>code\n  more\n\nend</code></pre><p>b</p>",
  "| a | b |\n|:--|--:|\n| `c` | d \\| e |\n| f |\n\ng": "<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td><code>c</code></td><td>d | e</td></tr><tr><td>f</td></tr></tbody></table></div><p>g</p>",
  "text\na | b\n--|--\nc | d | e": "<p>text</p><div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>c</td><td>d</td></tr></tbody></table></div>",
  "a | b\nno table": "<p>a | b\nno table</p>",
  "\\(x_1 * y_1 * z\\) \\[a*b*c\\] $$d_e_f$$ $5 and $6": "<p><span>\\(x_1 * y_1 * z\\)</span> <span>\\[a*b*c\\]</span> <span>$$d_e_f$$</span> $5 and $6</p>",
  "a\r\n\r\n- b\r\n- c\r\n": "<p>a</p><ul><li>b</li><li>c</li></ul>",
  "": "",
  " \n\t\n": "",
};

for (const [text, expected] of Object.entries(kDocuments)) {
  test("Markdown " + JSON.stringify(text.slice(0, 40)), () => equal(html(text), expected));
}

const kHostile = [
  "<script>window.attacked = 1</script><img src=x onerror=\"window.attacked = 1\"><svg onload=window.attacked=1>",
  "<a href=\"javascript:window.attacked=1\">x</a>\n\n<iframe srcdoc=\"<script>parent.attacked=1</script>\"></iframe>",
  "[x](javascript:window.attacked=1) [y](JaVaScRiPt:alert(1)) [z](data:text/html,<script>1</script>) [v](vbscript:x)",
  "[x](java\nscript:window.attacked=1) [w]( javascript:1) [u](&#106;avascript:1) [t](//e.org) [s](/local) [r](file:///etc/passwd)",
  "![i](javascript:1) ![j](https://e.org/track.gif) <javascript:alert(1)> <style>*{display:none}</style>",
  "```<script>\"onload=\"window.attacked=1\nbody</code></pre><script>window.attacked=1</script>\n```",
  "| <img src=x onerror=window.attacked=1> |\n|---|\n| <script>window.attacked=1</script> |",
  "# <b onmouseover=window.attacked=1>x\n> <object data=x>\n- <embed src=x>",
  "[\"onclick=\"window.attacked=1](https://e.org/\"onclick=\"window.attacked=1 'title\" onfocus=1')",
];

test("hostile text makes no element, attribute or address of its own", async () => {
  const allowed = new Set(("P H4 H5 H6 UL OL LI BLOCKQUOTE HR TABLE THEAD TBODY TR TH TD CODE PRE EM STRONG DEL BR A " +
                           "SPAN DIV BUTTON INPUT svg path").split(" "));
  const attributes = new Set(("class tabindex type aria-label aria-hidden title scope href target rel d viewBox disabled " +
                              "start").split(" "));
  for (const text of [...kHostile, kHostile.join("\n\n")]) {
    const node = document.createElement("div");
    document.body.append(node);
    renderMarkdown(node, text);
    for (const one of node.querySelectorAll("*")) {
      if (!allowed.has(one.tagName)) throw new Error(`element ${one.tagName} of ${text}`);
      for (const { name } of one.attributes) if (!attributes.has(name)) throw new Error(`attribute ${name} of ${text}`);
      if (one.tagName === "A" && !/^(https?|mailto):/.test(one.protocol)) throw new Error(`address ${one.href} of ${text}`);
      if (one.tagName === "A" && !/noopener/.test(one.rel)) throw new Error(`a link without noopener of ${text}`);
    }
    node.remove();
  }
  await new Promise((resolve) => setTimeout(resolve, 200));
  equal(window.attacked, undefined);
});

test("only addresses of the web and of mail are links", () => {
  for (const bad of ["javascript:1", " javascript:1", "java\tscript:1", "\u0001javascript:1", "data:,x", "//e.org", "x", "",
                     "http:", "https://", "blob:https://e.org/1", "HTTPSX://e"]) equal(safeTarget(bad), null, bad);
  equal(safeTarget("HTTPS://E.org"), "https://e.org/");
});

// A text that grows shows the same as the whole text, wherever it is cut.
test("Markdown that grows is the same as the whole", () => {
  const texts = [...Object.keys(kDocuments), ...kHostile];
  for (let seed = 1; seed <= 60; seed++) texts.push(randomText(seed));
  for (const text of texts) {
    const whole = document.createElement("div");
    renderMarkdown(whole, text);
    for (const step of [1, 2, 3, 7]) {
      const grown = document.createElement("div");
      const view = new MarkdownView(grown);
      let nFinal = 0;
      for (let end = 0; end < text.length; end += step) nFinal += view.set(text.slice(0, end)).length;
      nFinal += view.set(text).length;
      equal(grown.innerHTML, whole.innerHTML, `${JSON.stringify(text)} by ${step}`);
      equal(nFinal + view.open.length, grown.childElementCount, "blocks");
    }
  }
});

test("Markdown that is replaced is rendered anew", () => {
  const node = document.createElement("div");
  const view = new MarkdownView(node);
  view.set("a\n\nb\n\nc\n\n");
  view.set("d");
  equal(node.textContent, "d");
});

test("a block that is final is not rendered again", () => {
  const node = document.createElement("div");
  const view = new MarkdownView(node);
  view.set("first\n\n```js\nlet a");
  const [paragraph, code] = node.children;
  view.set("first\n\n```js\nlet a = 1;\nlet b");
  view.set("first\n\n```js\nlet a = 1;\nlet b = 2;\n```\n\nlast");
  equal([node.children[0] === paragraph, node.children[1] === code], [true, true]);
});

function randomText(seed) {
  const parts = ["a", "b ", "\n", "\n", "\n\n", "- ", "1. ", "2. ", "  ", "    ", "> ", "```", "~~~", "|", "|-|-|", "*", "**", "_", "`",
                 "[x]", "(https://e.org)", "# ", "---", "===", "<br>", "\\", "&lt;", "$$", "https://e.org ", "[ ] ", "\t", "!", "\r\n"];
  let state = seed;
  const next = () => state = (state * 1103515245 + 12345) % 2147483648;
  let text = "";
  for (let count = 0; count < 60; count++) text += parts[Math.floor(next() / 65536) % parts.length];
  return text;
}

// 100,000 characters of the worst kind take a moment, not minutes.
test("no text makes the renderer slow or deep", () => {
  const n = 100000;
  const repeated = ["*", "**a ", "_a", "*a **b ", "[", "![", "[a](", "[a](b", "](", "`", "``` `` ` ", "<", "<https://", "&", "&#1", "\\",
                    "> ", "- ", "1. ", "| ", "|a|\n|-|\n", "```\n", "a\n", " ", "# ", "~~", "$$", "\\(", "https://", "www.", "(", ")", "-", "=\n",
                    "- a\nb\n", "a*", "*a_", "|-", "\t", "[x]: y\n", "<a@b", "https://e.org/)))", "  \n"];
  for (const part of repeated) {
    for (const text of [part.repeat(n / part.length), "> ".repeat(500) + part.repeat(2000)]) {
      const node = document.createElement("div");
      const begun = performance.now();
      renderMarkdown(node, text);
      const took = performance.now() - begun;
      if (took > 4000) throw new Error(`${JSON.stringify(part)} took ${Math.round(took)} ms`);
      let depth = 0;
      for (let one = node; one; one = one.lastElementChild) depth++;
      if (depth > 300) throw new Error(`${JSON.stringify(part)} is ${depth} deep`);
    }
  }
});

// Conversations.

function sample() {
  const conversation = newConversation({ model: "m", system: "Be brief.", settings: { seed: 7 } });
  const question = addMessage(conversation, null, "user", "One?\nMore");
  const first = addMessage(conversation, question.id, "assistant", "First");
  const second = addMessage(conversation, question.id, "assistant", "Second ```code```");
  Object.assign(second, { end: "stop", reasoning: "Hm\n```\nx", model: "m" });
  first.end = "stopped";
  return { conversation, question, first, second };
}

test("an answer repeated is a version, and the path follows it", () => {
  const { conversation, question, first, second } = sample();
  equal(conversation.title, "One?");
  equal(shownMessages(conversation), [question, second]);
  equal(versionsOf(conversation, second), [first, second]);
  const below = addMessage(conversation, first.id, "user", "Two?");
  showVersion(conversation, second);
  equal(shownMessages(conversation), [question, second]);
  showVersion(conversation, first);
  equal(shownMessages(conversation), [question, first, below]);
});

test("a request has the system prompt, no empty answer and turns", () => {
  const { conversation, second } = sample();
  const lost = addMessage(conversation, addMessage(conversation, second.id, "user", "A").id, "assistant", "");
  const last = addMessage(conversation, lost.id, "user", "B");
  equal(requestMessages(conversation, last.id), [
    { role: "system", content: "Be brief." }, { role: "user", content: "One?\nMore" },
    { role: "assistant", content: "Second ```code```" }, { role: "user", content: "A\n\nB" }]);
});

test("JSON is read as it was written", () => {
  const { conversation } = sample();
  equal(fromJson(toJson([conversation])), [conversation]);
});

test("Markdown of a conversation has its parts", () => {
  const text = toMarkdown(sample().conversation);
  for (const part of ["# One?\n", "## System\n\nBe brief.", "## User\n\nOne?\nMore", "## Assistant (m)\n\nReasoning:\n\n````text\nHm\n```\nx\n````",
                      "Second ```code```"]) {
    if (!text.includes(part)) throw new Error(`no ${JSON.stringify(part)} in ${JSON.stringify(text)}`);
  }
});

test("a file that is no export is refused with a reason", () => {
  const good = JSON.parse(toJson([sample().conversation]));
  const changed = (change) => {
    const file = structuredClone(good);
    change(file, file.conversations[0]);
    return JSON.stringify(file);
  };
  const bad = ["", "{", "null", "[]", "{}", "1", changed((file) => { file.version = 2; }), changed((file) => { file.conversations = {}; }),
               changed((file) => { file.conversations[0] = null; }), changed((_, one) => { one.id = "../x"; }), changed((_, one) => { one.title = 1; }),
               changed((_, one) => { one.messages = null; }), changed((_, one) => { one.messages[0].parent = one.messages[1].id; }),
               changed((_, one) => { one.messages[1].parent = "missing"; }), changed((_, one) => { one.messages[1].id = one.messages[0].id; }),
               changed((_, one) => { one.messages[0].role = "system"; }), changed((_, one) => { one.messages[0].content = {}; }),
               changed((_, one) => { one.messages[1].reasoning = []; }), changed((_, one) => { one.messages[0] = 1; })];
  const whole = JSON.stringify(good);
  for (let end = 0; end < whole.length; end += 7) bad.push(whole.slice(0, end));
  for (const text of bad) {
    let message = "";
    try {
      fromJson(text);
    } catch (error) {
      message = error.message;
    }
    if (!/the file|conversation 1/.test(message)) throw new Error(`${text.slice(0, 80)}: ${message || "taken"}`);
  }
});

test("settings out of range are left out", () => {
  equal(readSettings({ temperature: 3, top_p: 0.5, top_k: 1.5, min_p: NaN, max_tokens: 0, seed: 7, stop: ["a", "", 1, "b", "c", "d", "e"], other: 1 }),
        { top_p: 0.5, seed: 7, stop: ["a", "b", "c", "d"] });
  for (const value of [null, undefined, 1, "x", []]) equal(readSettings(value), {});
});

window.results = null;
const results = [];
for (const { name, run } of tests) {
  try {
    await run();
    results.push({ name, error: "" });
  } catch (error) {
    results.push({ name, error: String(error?.stack ?? error) });
  }
}
window.results = results;
