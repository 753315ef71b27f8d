// SPDX-License-Identifier: MIT
//
// The renderer's promises beyond its output: the trust of every byte, errors with their place,
// refusals by name, and limits.

#include "chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chat/jinja_format.h"
#include "chat/jinja_interpreter.h"
#include "chat/jinja_parser.h"
#include "chat/jinja_text.h"

namespace qsf {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// Renders with one user message; pieces of messages in square brackets.
std::string render(std::string_view source, std::string_view content = "xy") {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed) return "parse: " + parsed.error().message();
  const ChatMessage messages[] = {{"user", content}};
  const auto pieces = parsed->render({.messages = messages, .bos_token = "<s>"});
  if (!pieces) return "render: " + pieces.error().message();
  std::string out;
  for (const ChatPiece& piece : *pieces) out += piece.trusted ? piece.text : "[" + piece.text + "]";
  return out;
}

std::string show(const std::string& expression, std::string_view content = "xy") {
  return render("{% set c = messages[0].content %}{{ " + expression + " }}", content);
}

TEST(ChatTrustTest, FollowsTheBytesThroughOperators) {
  EXPECT_EQ(render("<{{ messages[0].content }}>"), "<[xy]>");
  EXPECT_EQ(show("'<' + c + '>'"), "<[xy]>");
  EXPECT_EQ(show("'<' ~ c ~ 1 ~ '>'"), "<[xy]1>");
  EXPECT_EQ(show("c * 2 + '|'"), "[xyxy]|");
  EXPECT_EQ(show("('a' + c + 'b')[1:3]"), "[xy]");
  EXPECT_EQ(show("('a' + c + 'b')[2:]"), "[y]b");
  EXPECT_EQ(show("('a' + c + 'b')[::-1]"), "b[yx]a");
  EXPECT_EQ(show("('a' + c + 'b')[1]"), "[x]");
  EXPECT_EQ(show("c if c else 'no'"), "[xy]");
  EXPECT_EQ(show("c or 'no'"), "[xy]");
  EXPECT_EQ(show("[c, 'a']"), "['[xy]', 'a']");
  EXPECT_EQ(show("{'k': c}.k"), "[xy]");
}

TEST(ChatTrustTest, FollowsTheBytesThroughMethods) {
  EXPECT_EQ(show("('<' + c + '>').replace('x', '-')"), "<-[y]>");
  EXPECT_EQ(show("('<' + c + '>').replace('<', c)"), "[xyxy]>");
  EXPECT_EQ(show("'a.b'.replace('.', c)"), "a[xy]b");
  EXPECT_EQ(show("('a ' + c).split(' ')[1]"), "[xy]");
  EXPECT_EQ(show("c.split('y')[0] + '|'"), "[x]|");
  EXPECT_EQ(show("(' ' + c + ' ').strip()"), "[xy]");
  EXPECT_EQ(show("('a' + c).upper()"), "A[XY]");
  EXPECT_EQ(show("('a' + c).title()"), "A[xy]");
  EXPECT_EQ(show("messages[0].get('content')"), "[xy]");
  EXPECT_EQ(show("messages[0]['content']"), "[xy]");
  EXPECT_EQ(show("(messages[0].items() | list)[1][1]"), "[xy]");
}

TEST(ChatTrustTest, FollowsTheBytesThroughFilters) {
  EXPECT_EQ(show("('<' + c) | trim | upper"), "<[XY]");
  EXPECT_EQ(show("('<' + c) | replace('<', '>')"), ">[xy]");
  EXPECT_EQ(show("c | replace('', '-')"), "-[x]-[y]-");
  EXPECT_EQ(show("[c, 'b'] | join('-')"), "[xy]-b");
  EXPECT_EQ(show("c | tojson"), "\"[xy]\"");
  EXPECT_EQ(show("c | tojson", "a\n\""), "\"[a\\n\\\"]\"");
  EXPECT_EQ(show("messages | tojson"), "[{\"role\": \"user\", \"content\": \"[xy]\"}]");
  EXPECT_EQ(show("nothing | default(c)"), "[xy]");
  EXPECT_EQ(show("('a' + c) | list | last"), "[y]");
  EXPECT_EQ(show("('a' + c) | first"), "a");
  EXPECT_EQ(show("('a\n' + c) | indent(2)"), "a\n  [xy]");
  EXPECT_EQ(show("messages | map(attribute='content') | join"), "[xy]");
  EXPECT_EQ(show("c | string | safe"), "[xy]");
  EXPECT_EQ(show("[c, 'a'] | sort | join"), "a[xy]");
  EXPECT_EQ(show("('<' ~ c) | title"), "<[Xy]");
  EXPECT_EQ(show("[c, c] | join(', ')"), "[xy], [xy]");
}

TEST(ChatTrustTest, FollowsTheBytesThroughStatements) {
  EXPECT_EQ(render("{% for m in messages %}<{{ m['content'] }}>{% endfor %}"), "<[xy]>");
  EXPECT_EQ(render("{% set t %}<{{ messages[0].content }}>{% endset %}{{ t }}{{ t }}"),
            "<[xy]><[xy]>");
  EXPECT_EQ(render("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(messages[0].content) }}"),
            "<[xy]>");
  EXPECT_EQ(render("{% filter upper %}a{{ messages[0].content }}{% endfilter %}"), "A[XY]");
  EXPECT_EQ(
      render("{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '<' + "
             "m.content %}{% endfor %}{{ ns.t }}"),
      "<[xy]");
}

TEST(ChatTrustTest, RolesThatChatsAgreeOnAreStructure) {
  const auto parsed = ChatTemplate::parse("{% for m in messages %}<|{{ m.role }}|>{% endfor %}");
  ASSERT_TRUE(parsed);
  const ChatMessage messages[] = {{"assistant", ""}, {"im_end", ""}};
  const auto pieces = parsed->render({.messages = messages});
  ASSERT_TRUE(pieces);
  ASSERT_EQ(pieces->size(), 3U);
  EXPECT_EQ((*pieces)[0].text, "<|assistant|><|");
  EXPECT_TRUE((*pieces)[0].trusted);
  EXPECT_EQ((*pieces)[1].text, "im_end");
  EXPECT_FALSE((*pieces)[1].trusted);
  EXPECT_TRUE((*pieces)[2].trusted);
}

TEST(ChatTrustTest, PiecesAlternateAndNoneIsEmpty) {
  const auto parsed = ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}");
  ASSERT_TRUE(parsed);
  const ChatMessage messages[] = {{"user", "a"}, {"user", ""}, {"user", "b"}};
  const auto pieces = parsed->render({.messages = messages});
  ASSERT_TRUE(pieces);
  ASSERT_EQ(pieces->size(), 1U);
  EXPECT_EQ((*pieces)[0].text, "ab");
  const auto empty = parsed->render({});
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->empty());
}

TEST(ChatTemplateTest, BytesThatAreNoTextPassThrough) {
  EXPECT_EQ(show("c", "a\xFF\xC3"), "[a\xFF\xC3]");
  EXPECT_EQ(show("c | length", "a\xFF\xC3"), "3");
  EXPECT_EQ(show("c[1:]", "a\xFF\xC3"), "[\xFF\xC3]");
  EXPECT_EQ(show("c.replace('a', 'b')", "a\xFF"), "b[\xFF]");
  EXPECT_EQ(show("c | trim", " \xE2\x80 "), "[\xE2\x80]");
  EXPECT_EQ(show("c", std::string("a\0b", 3)), "[" + std::string("a\0b", 3) + "]");
}

TEST(ChatTemplateTest, TokensThatAreMissingAreUndefined) {
  EXPECT_EQ(render("{{ bos_token }}{{ eos_token is defined }}"), "<s>False");
}

TEST(ChatTemplateTest, DatesAreThoseOfTheCaller) {
  const auto parsed =
      ChatTemplate::parse("{{ strftime_now('%d %b %Y %H:%M:%S %j %-d %A %B %I %p %y %m %a %%') }}");
  ASSERT_TRUE(parsed);
  const auto date = [&](std::int64_t seconds) {
    const auto pieces = parsed->render({.now_seconds = seconds});
    return pieces && pieces->size() == 1 ? (*pieces)[0].text : std::string("failed");
  };
  EXPECT_EQ(date(0), "01 Jan 1970 00:00:00 001 1 Thursday January 12 AM 70 01 Thu %");
  EXPECT_EQ(date(1709251199), "29 Feb 2024 23:59:59 060 29 Thursday February 11 PM 24 02 Thu %");
  EXPECT_EQ(date(-1), "31 Dec 1969 23:59:59 365 31 Wednesday December 11 PM 69 12 Wed %");
  EXPECT_EQ(date(INT64_MAX), "failed");
}

TEST(ChatTemplateTest, ErrorsTellWhereAndWhat) {
  EXPECT_EQ(render("a\n\n{{ raise_exception('Roles must ' + 'alternate') }}"),
            "render: chat template: line 3: Roles must alternate");
  EXPECT_EQ(render("\n{{ nothing.more }}"),
            "render: chat template: line 2: 'nothing' is undefined");
  EXPECT_THAT(render("\n{% if %}"), HasSubstr("parse: chat template: line 2: "));
  EXPECT_THAT(render("{{ 1 | nosuch }}"),
              HasSubstr("line 1: the filter 'nosuch' is not supported"));
  EXPECT_THAT(render("{{ 1 is nosuch }}"), HasSubstr("line 1: the test 'nosuch' is not supported"));
  EXPECT_THAT(render("\n{% include 'x' %}"), HasSubstr("line 2: the tag 'include'"));
  EXPECT_THAT(render("{% for a in b recursive %}{% endfor %}"), HasSubstr("recursive"));
  const auto raised = ChatTemplate::parse("{{ raise_exception('no') }}")->render({});
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ChatTemplate::parse("{{ 1 | nosuch }}").error().code(), StatusCode::kUnsupported);
  EXPECT_EQ(ChatTemplate::parse("{{ ").error().code(), StatusCode::kCorrupt);
}

// Parts of Jinja and Python that no template of a public model uses.
TEST(ChatTemplateTest, TheRestOfTheLanguageIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 'a'.zfill(3) }}", "the method 'zfill'"},
      {"{{ '{}'.format(1) }}", "the method 'format'"},
      {"{{ messages[0].content.isdigit() }}", "the method 'isdigit'"},
      {"{{ loop.cycle(1) }}", "the method 'cycle'"},
      {"{{ 'a' | center(9) }}", "the filter 'center'"},
      {"{{ messages | batch(2) }}", "the filter 'batch'"},
      {"{{ messages | map('center') }}", "the filter 'center'"},
      {"{{ 1 is odd }}", "the test 'odd'"},
      {"{{ messages | select('odd') }}", "the test 'odd'"},
      {"{{ messages | rejectattr('role', 'odd') }}", "the test 'odd'"},
      {"{{ '%s' % 1 }}", "'%' formatting"},
      {"{{ 1 / 2 }}", "the operator '/'"},
      {"{{ 1 // 2 }}", "the operator '//'"},
      {"{{ 2 ** 2 }}", "the operator '**'"},
      {"{{ cycler(1) }}", "the function 'cycler'"},
      {"{{ range(**{}) }}", "the argument '**...'"},
      {"{% macro m() %}{{ varargs }}{% endmacro %}", "the variable 'varargs'"},
      {"{% with a = 1 %}{% endwith %}", "the tag 'with'"},
      {"{% print 1 %}", "the tag 'print'"},
      {"{%- raw %}{{ }} {% endraw %}", "the tag 'raw'"},
      {"{{ 0x1F }}", "the number 0x"},
  };
  for (const auto& [source, name] : cases) {
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed) << source;
    EXPECT_EQ(parsed.error().code(), StatusCode::kUnsupported) << source;
    EXPECT_THAT(parsed.error().message(), HasSubstr(std::string("line 1: ") + name)) << source;
  }
}

TEST(ChatTemplateTest, WhatNeedsUnicodeTablesIsRefused) {
  EXPECT_THAT(show("c | upper", "\xC3\xA9"), HasSubstr("beyond ASCII are not supported"));
  EXPECT_THAT(show("messages", "\xC3\xA9"), HasSubstr("use the filter tojson"));
  EXPECT_EQ(show("messages[0] | tojson", "\xC3\xA9"),
            "{\"role\": \"user\", \"content\": \"[\xC3\xA9]\"}");
}

// Methods that are read and not called are known only when the template runs.
TEST(ChatTemplateTest, MethodsThatAreMissingAreNotUndefined) {
  EXPECT_THAT(show("'a'.zfill is defined"), HasSubstr("the method 'zfill' of type str"));
  EXPECT_THAT(show("{}.copy"), HasSubstr("the method 'copy' of type dict"));
  EXPECT_THAT(show("[1].count"), HasSubstr("the method 'count' of type list"));
  EXPECT_EQ(show("{'count': 1}.count"), "1");
  EXPECT_EQ(show("[1].append is defined"), "False");
}

TEST(ChatLimitsTest, SourceAndItsNestingAreBounded) {
  const auto nest = [](std::string_view open, std::string_view middle, std::string_view close,
                       int n) {
    std::string source = "{{ ";
    for (int i = 0; i < n; ++i) source += open;
    source += middle;
    for (int i = 0; i < n; ++i) source += close;
    return source + " }}";
  };
  EXPECT_EQ(render(nest("(", "1", ")", 20)), "1");
  for (const auto& source :
       {nest("(", "1", ")", 5000), nest("[", "1", "]", 5000), nest("-", "1", "", 5000),
        nest("not ", "1", "", 5000), nest("1 + ", "1", "", 5000), nest("1 is in [", "1", "]", 5000),
        nest("1 if 1 else ", "1", "", 5000), nest("", "1", "[0]", 5000),
        nest("", "1", " | string", 5000)}) {
    EXPECT_THAT(render(source), AnyOf(HasSubstr("deeper than 100"), HasSubstr("more than 250")))
        << source.substr(0, 40);
  }
  std::string tags;
  for (int i = 0; i < 5000; ++i) tags += "{% if 1 %}";
  EXPECT_THAT(render(tags), HasSubstr("nested deeper"));
  EXPECT_THAT(render(std::string((1U << 20U) + 1, 'a')), HasSubstr("expected at most 1048576"));
  EXPECT_EQ(render(std::string(1U << 20U, 'a')).size(), 1U << 20U);
}

TEST(ChatLimitsTest, EveryTemplateEnds) {
  const std::string loops =
      "{% for a in range(90000) %}{% for b in range(90000) %}{% for c in range(90000) %}{% endfor "
      "%}{% endfor %}{% endfor %}";
  EXPECT_THAT(render(loops), HasSubstr("did not end"));
  EXPECT_THAT(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(render("{{ range(1000000) }}"), HasSubstr("more than 100000"));
  EXPECT_THAT(render("{{ 'a' * 1000000000000 }}"), HasSubstr("values of the template take"));
  EXPECT_THAT(render("{{ [1] * 1000000000000 }}"), HasSubstr("values of the template take"));
  EXPECT_THAT(render("{{ 'a' | indent(1000000000000) }}"), HasSubstr("above 1000"));
  EXPECT_THAT(render("{{ 9000000000000000000 * 2 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(render("{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] "
                     "%}{% endfor %}{{ ns.l }}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(render("{% set ns = namespace(l=[1]) %}{% for i in range(50) %}{% set ns.l = [ns.l, "
                     "ns.l] %}{% endfor %}{{ ns.l }}"),
              HasSubstr("holds more than"));
  EXPECT_THAT(render("{% set ns = namespace(t='aaaaaaaa') %}{% for i in range(90) %}{% set ns.t = "
                     "ns.t + ns.t %}{% endfor %}"),
              HasSubstr("values of the template take"));
  EXPECT_THAT(render("{% set t = 'a' * 1000000 %}{% for i in range(100) %}{{ t }}{% endfor %}"),
              HasSubstr("wrote more than"));
}

TEST(ChatLimitsTest, SearchesAreLinear) {
  // Quadratic, each of these would run for hours.
  const std::string setup = "{% set t = 'a' * 4000000 %}{% set p = 'a' * 2000000 + 'b' %}";
  EXPECT_EQ(render(setup + "{{ p in t }}"), "False");
  EXPECT_EQ(render(setup + "{{ t.split(p) | length }}"), "1");
  EXPECT_EQ(render(setup + "{{ t.replace(p, '') | length }}"), "4000000");
  EXPECT_EQ(render(setup + "{{ t | trim(p) | length }}"), "0");
  EXPECT_EQ(render("{{ (('1_' * 1000) * 10000 + '1') | int }}"), "0");
}

TEST(ChatLimitsTest, LargeArgumentsAreChargedFor) {
  for (const char* use :
       {"'a'.split(t)", "'a'.strip(t)", "{'a': 1}.get(t)", "range(1, t)", "'a' is eq(t)"}) {
    const std::string source =
        "{% set t = ('a' * 1000) * 1000 %}{% for i in range(9) %}{% set x = " + std::string(use) +
        " %}{% endfor %}";
    const auto program = jinja::parse_program(source);
    ASSERT_TRUE(program) << use;
    const auto text = jinja::run_program(*program, {}, {.steps = 30000});
    ASSERT_FALSE(text) << use;
    EXPECT_THAT(text.error().message(), HasSubstr("30000 steps")) << use;
  }
}

TEST(ChatLimitsTest, LongNamesAndManyParametersAreChargedFor) {
  const std::string name(200000, 'n');
  std::string parameters = "a";
  for (int i = 0; i < 2000; ++i) parameters += ", p" + std::to_string(i);
  for (const std::string& source :
       {"{% for i in range(9) %}{{ messages." + name + " }}{% endfor %}",
        "{% macro m(" + parameters + ") %}x{% endmacro %}{{ m() }}"}) {
    const auto program = jinja::parse_program(source);
    ASSERT_TRUE(program);
    const auto text = jinja::run_program(*program, {}, {.steps = 20000});
    ASSERT_FALSE(text) << source.substr(0, 40);
    EXPECT_THAT(text.error().message(), HasSubstr("20000 steps"));
  }
}

TEST(ChatLimitsTest, IntermediateResultsAreBounded) {
  jinja::Heap heap({.live_bytes = 4000});
  const jinja::Text lines(std::string(1000, '\n'), true);
  const std::string newline = "\n";
  EXPECT_FALSE(split(heap, lines, &newline, -1));
  EXPECT_TRUE(split(heap, lines, &newline, 5));
  EXPECT_FALSE(split_lines(heap, lines));
  std::string words;
  for (int i = 0; i < 1000; ++i) words += "a ";
  const jinja::Text text(words, true);
  EXPECT_FALSE(split(heap, text, nullptr, -1));
  EXPECT_TRUE(split(heap, text, nullptr, 5));

  const auto controls = heap.make_text(std::string(1000, '\x01'), true);
  ASSERT_TRUE(controls);
  EXPECT_FALSE(to_json(heap, *controls, {}));
  EXPECT_FALSE(to_repr(heap, *controls));

  const auto program = jinja::parse_program("{% set t = 'ab' * 500 %}{{ t[::-1] }}");
  ASSERT_TRUE(program);
  EXPECT_FALSE(jinja::run_program(*program, {}, {.live_bytes = 6000}));
  EXPECT_TRUE(jinja::run_program(*program, {}, {.live_bytes = 20000}));
}

TEST(ChatLimitsTest, ChangesOfTrustCountAsOutput) {
  const auto program = jinja::parse_program("{{ (messages[0].content + '.') * 1000 }}");
  ASSERT_TRUE(program);
  const ChatMessage messages[] = {{"user", "x"}};
  EXPECT_FALSE(jinja::run_program(*program, {.messages = messages}, {.output_bytes = 10000}));
  EXPECT_TRUE(jinja::run_program(*program, {.messages = messages}, {.output_bytes = 40000}));
}

TEST(ChatLimitsTest, NamesInMessagesAreCutShort) {
  const std::string name(5000, 'n');
  const std::vector<std::string> sources = {
      "{{ " + name + ".a }}", "{{ 1." + name + ".a }}", "{{ 1['n' * 5000].a }}",
      "{{ {}['n' * 5000].a }}",
      "{% macro m(" + name + ") %}{{ " + name + ".a }}{% endmacro %}{{ m() }}"};
  for (const std::string& source : sources) {
    const std::string shown = render(source);
    EXPECT_THAT(shown, HasSubstr("nnn...'"));
    EXPECT_LT(shown.size(), 250U) << shown;
  }
}

TEST(ChatLimitsTest, StepsAndOutputCanBeLowered) {
  const auto program = jinja::parse_program("{% for i in range(100) %}abc{% endfor %}");
  ASSERT_TRUE(program);
  EXPECT_TRUE(jinja::run_program(*program, {}, {}));
  EXPECT_FALSE(jinja::run_program(*program, {}, {.steps = 100}));
  EXPECT_FALSE(jinja::run_program(*program, {}, {.output_bytes = 299}));
  EXPECT_TRUE(jinja::run_program(*program, {}, {.output_bytes = 300}));
  EXPECT_FALSE(jinja::run_program(*program, {}, {.live_bytes = 1000}));
}

}  // namespace
}  // namespace qsf
