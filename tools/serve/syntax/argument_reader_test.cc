// SPDX-License-Identifier: MIT
//
// Arguments of Python and of Gemma, whole and byte by byte.

#include "tools/serve/syntax/argument_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tools/serve/syntax/json_text.h"

namespace qsf_tools {
namespace {

// The JSON and what stands behind the arguments; or what could not be read.
std::string outcome_of(ArgumentReader reader, const std::string& text, bool byte_by_byte) {
  ArgumentReader::Found found = ArgumentReader::Found::kMore;
  for (std::size_t n = byte_by_byte ? 1 : text.size();
       n <= text.size() && found == ArgumentReader::Found::kMore; ++n) {
    found = reader.read(std::string_view(text).substr(0, n));
  }
  if (found == ArgumentReader::Found::kMore) found = reader.read(text);
  const std::string rest = text.substr(reader.n_bytes());
  switch (found) {
    case ArgumentReader::Found::kMore: return "more";
    case ArgumentReader::Found::kBad: return "bad " + rest;
    case ArgumentReader::Found::kEnd: break;
  }
  const std::string json = reader.take_json();
  EXPECT_TRUE(is_json(json)) << json;
  return json + rest;
}

std::string read_with(const ArgumentReader& reader, const std::string& text) {
  const std::string whole = outcome_of(reader, text, false);
  EXPECT_EQ(outcome_of(reader, text, true), whole) << text;
  return whole;
}

std::string python(const std::string& text) {
  return read_with(ArgumentReader('=', {}), text);
}

std::string gemma(const std::string& text) {
  return read_with(ArgumentReader(':', "<|\"|>"), text);
}

TEST(ArgumentReaderTest, LiteralsOfPython) {
  EXPECT_EQ(python("()"), "{}");
  EXPECT_EQ(python("( )]"), "{}]");
  EXPECT_EQ(python("(a=1)"), R"({"a": 1})");
  EXPECT_EQ(python("( a = -1.5e3 , b=+2, c=.5, d=-.25, e=3., f=1.e2, )"),
            R"({"a": -1.5e3, "b": 2, "c": 0.5, "d": -0.25, "e": 3.0, "f": 1.0e2})");
  EXPECT_EQ(python("(a=True, b=False, c=None, d=true, e=false, f=null)"),
            R"({"a": true, "b": false, "c": null, "d": true, "e": false, "f": null})");
  EXPECT_EQ(python("(a=[], b=[1, 'x', [2],], c={}, d={'k': [None], \"l\": {'m': 1},})"),
            R"({"a": [], "b": [1, "x", [2]], "c": {}, "d": {"k": [null], "l": {"m": 1}}})");
  EXPECT_EQ(python("(a={1: 'one', 2: 'two'})"), R"({"a": {"1": "one", "2": "two"}})");
}

TEST(ArgumentReaderTest, TextsAndTheirEscapes) {
  EXPECT_EQ(python(R"((a='x', b="y"))"), R"({"a": "x", "b": "y"})");
  EXPECT_EQ(python(R"((a='', b=""))"), R"({"a": "", "b": ""})");
  EXPECT_EQ(python(R"((a='say "hi"', b="it's"))"), R"({"a": "say \"hi\"", "b": "it's"})");
  EXPECT_EQ(python(R"((a='it\'s', b="\"", c='\\'))"), R"({"a": "it's", "b": "\"", "c": "\\"})");
  EXPECT_EQ(python(R"((a='1\n2\t3\r\x41\u00e9\U0001F600\101\0'))"),
            "{\"a\": \"1\\n2\\t3\\rA\xC3\xA9\xF0\x9F\x98\x80"
            "A\\u0000\"}");
  // As JSON writes them, and what Python does not know.
  EXPECT_EQ(python(R"((a="\/\ud83d\ude00\ud83d", b='\d\u12'))"),
            "{\"a\": \"/\xF0\x9F\x98\x80\xEF\xBF\xBD\", \"b\": \"\\\\d\\\\u12\"}");
  EXPECT_EQ(python("(a='one\\\ntwo\nthree')"), R"({"a": "onetwo\nthree"})");
  EXPECT_EQ(python("(a='''it's \"so\"''', b=\"\"\"\"\"\")"), R"({"a": "it's \"so\"", "b": ""})");
  EXPECT_EQ(python("(a='''print('hi')''')"), R"x({"a": "print('hi')"})x");
  EXPECT_EQ(python("(a=\"\"\"say \"a\", \"b\"\"\"\", b='''''' , c=['''x''', ''])"),
            R"({"a": "say \"a\", \"b\"", "b": "", "c": ["x", ""]})");
  EXPECT_EQ(python("(a='''it''s'' ', \\''''''')"), R"({"a": "it''s'' ', ''''"})");
  EXPECT_EQ(python("(a='''x')"), "more");
  // Backslashes that are not meant as escapes.
  EXPECT_EQ(python(R"((a='C:\new', b='C:\Windows'))"), R"({"a": "C:\new", "b": "C:\\Windows"})");
  EXPECT_EQ(python("(a='\xFF')"), "{\"a\": \"\xEF\xBF\xBD\"}");
}

// A quote behind a backslash is part of the text, also where the answer is cut behind it.
TEST(ArgumentReaderTest, BackslashesBeforeQuotes) {
  EXPECT_EQ(python(R"((a="C:\\"))"), R"({"a": "C:\\"})");
  EXPECT_EQ(python(R"((a="C:\\", b='D:\\'), "x")"), R"({"a": "C:\\", "b": "D:\\"}, "x")");
  EXPECT_EQ(python(R"((a="say \"no\"", b='it\'s'))"), R"({"a": "say \"no\"", "b": "it's"})");
  EXPECT_EQ(python(R"((a='\'x\', y', b="it\'s" ))"), R"({"a": "'x', y", "b": "it's"})");
  EXPECT_EQ(python(R"x((a='# it's\nx = [f(\'a\')]\nprint(x)'))x"),
            R"x({"a": "# it's\nx = [f('a')]\nprint(x)"})x");
  EXPECT_EQ(python(R"x((a='print(\'a\'))x"), "more");
  EXPECT_EQ(python(R"x((a='C:\'))x"), "more");
}

// Texts as Python and JSON write them come back, whatever marks they hold.
TEST(ArgumentReaderTest, WrittenTextsComeBack) {
  const std::vector<std::string> pieces = {"]",  ")",  "}", "[", "(",  "{",  ",",  "=",  ":",  "'",
                                           "\"", "\\", " ", "a", "b=", "f(", "),", "')", "\n", "x"};
  std::mt19937 random(41);
  const auto written = [](const std::string& text, char quote) {
    std::string out(1, quote);
    for (const char c : text) {
      if (c == quote || c == '\\') out += '\\';
      out += c == '\n' ? "\\n" : std::string(1, c);
    }
    return out + quote;
  };
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> texts(3);
    for (std::string& text : texts) {
      for (std::size_t n = random() % 8; n > 0; --n) text += pieces[random() % pieces.size()];
    }
    const auto quote = [&] { return random() % 2 == 0 ? '"' : '\''; };
    ASSERT_EQ(python("(a=" + written(texts[0], quote()) + ", b=[" + written(texts[1], quote()) +
                     "], c={'k': " + written(texts[2], quote()) + "})]"),
              "{\"a\": " + json_quoted(texts[0]) + ", \"b\": [" + json_quoted(texts[1]) +
                  "], \"c\": {\"k\": " + json_quoted(texts[2]) + "}}]");
  }
}

// Templates write texts between quotes as they are.
TEST(ArgumentReaderTest, QuotesWithinTexts) {
  EXPECT_EQ(python("(a='it's', b=1)"), R"({"a": "it's", "b": 1})");
  EXPECT_EQ(python("(a='(it's [so]} ' , b='x')"), R"({"a": "(it's [so]} ", "b": "x"})");
  EXPECT_EQ(python("(a=['it's', 'x'], b={'it's': 'y's'})"),
            R"({"a": ["it's", "x"], "b": {"it's": "y's"}})");
  EXPECT_EQ(python("(a='it\\'s' )"), R"({"a": "it's"})");
  // A comma behind a quote is text, too, where no argument follows it.
  EXPECT_EQ(python("(a='the dogs', cats', b=2)"), R"({"a": "the dogs', cats", "b": 2})");
  EXPECT_EQ(python("(a='x', 'y' , b_2 =2, c=\"z\",)"), R"({"a": "x', 'y", "b_2": 2, "c": "z"})");
  EXPECT_EQ(gemma("{a:'x', y', b:'z', \"c\":1,<|\"|>d<|\"|>:'',}"),
            R"({"a": "x', y", "b": "z", "c": 1, "d": ""})");
  for (const std::size_t n : {254U, 255U, 256U, 257U, 300U}) {
    const std::string blanks(n, ' ');
    EXPECT_EQ(python("(a='x'," + blanks + "b=1)") == R"({"a": "x", "b": 1})", n < 255) << n;
  }
}

TEST(ArgumentReaderTest, WhatIsNoLiteralIsRefused) {
  EXPECT_EQ(python("(1)"), "bad 1)");
  EXPECT_EQ(python("('x')"), "bad 'x')");
  EXPECT_EQ(python("(a=1, \"x\")"), "bad \"x\")");
  EXPECT_EQ(python("(a=)"), "bad )");
  EXPECT_EQ(python("(=1)"), "bad =1)");
  EXPECT_EQ(python("(,)"), "bad ,)");
  EXPECT_EQ(python("(a:1)"), "bad a:1)");
  EXPECT_EQ(python("(a=1 b=2)"), "bad b=2)");
  EXPECT_EQ(python("(a=1,, b=2)"), "bad , b=2)");
  EXPECT_EQ(python("(a=1]"), "bad ]");
  EXPECT_EQ(python("(a=1, b=2, a=3)"), "bad a=3)");
  EXPECT_EQ(gemma("{a:1,\"a\":2}"), "bad \"a\":2}");
  EXPECT_EQ(python("(a={'a': 1}, b=[{'a': 2}])"), R"({"a": {"a": 1}, "b": [{"a": 2}]})");
  EXPECT_EQ(python("(a=[1, 2)"), "bad )");
  EXPECT_EQ(python("(a=[,])"), "bad ,])");
  EXPECT_EQ(python("(a=(1, 2))"), "bad (1, 2))");
  EXPECT_EQ(python("(a={1, 2})"), "bad 1, 2})");
  EXPECT_EQ(python("(a={'k'})"), "more");
  EXPECT_EQ(python("(a=f(1))"), "bad f(1))");
  EXPECT_EQ(python("(a=today)"), "bad today)");
  EXPECT_EQ(python("(a=007)"), "bad 007)");
  EXPECT_EQ(python("(a=.)"), "bad .)");
  EXPECT_EQ(python("(a=--1)"), "bad --1)");
  EXPECT_EQ(python("(a=1_000)"), "bad 1_000)");
  EXPECT_EQ(python("(a=nan)"), "bad nan)");
  EXPECT_EQ(python("(**{'a': 1})"), "bad **{'a': 1})");
  EXPECT_EQ(python("(a=f'x')"), "bad f'x')");
  EXPECT_EQ(python("(a='x' 'y')"), R"({"a": "x' 'y"})");
}

TEST(ArgumentReaderTest, BoundsOfNamesWordsAndBrackets) {
  for (const std::size_t n : {63U, 64U, 65U, 255U, 256U, 257U, 1000U}) {
    const std::string name(n, 'n');
    const std::string named = python("(" + name + "=1)");
    EXPECT_EQ(named.starts_with("bad"), n > 256) << n;
    const std::string digits = python("(a=" + std::string(n, '1') + ")");
    EXPECT_EQ(digits.starts_with("bad"), n > 64) << n;
    const std::string deep = python("(a=" + std::string(n, '[') + std::string(n, ']') + ")");
    EXPECT_EQ(deep.starts_with("bad"), n > 63) << n;
  }
}

TEST(ArgumentReaderTest, ArgumentsOfGemma) {
  EXPECT_EQ(gemma("{}"), "{}");
  EXPECT_EQ(gemma(R"({city:<|"|>Rome's "new" \n<|"|>,days:3})"),
            R"({"city": "Rome's \"new\" \\n", "days": 3})");
  EXPECT_EQ(gemma(R"({a:[<|"|>x<|"|>,true],b:{c:{d:-1.5},e:<|"|><|"|>}}.)"),
            R"({"a": ["x", true], "b": {"c": {"d": -1.5}, "e": ""}}.)");
  EXPECT_EQ(gemma(R"({a:{<|"|>k<|"|>:1}, "b": ["x", null]})"),
            R"({"a": {"k": 1}, "b": ["x", null]})");
  EXPECT_EQ(gemma(R"({a:<|"|>} , <|"|>})"), R"({"a": "} , "})");
  EXPECT_EQ(gemma(R"({a:Rome})"), "bad Rome}");
  EXPECT_EQ(gemma(R"({a=1})"), "bad a=1}");
  EXPECT_EQ(gemma(R"({a:<|x})"), "bad <|x}");
  EXPECT_EQ(gemma(R"({a:<|"|>x)"), "more");
}

// Words and numbers are values, unless the schema wants a text.
TEST(ArgumentReaderTest, WordsOfGemmaFollowTheSchema) {
  const std::string schema = R"({"properties": {"s": {"type": "string"}, "b": {"type": "boolean"},
      "n": {"type": ["string", "null"]}, "i": {"type": ["integer", "string"]}, "any": {},
      "o": {"type": "string", "nullable": true}, "l": {"type": "array", "items": {"$ref": "#/$defs/t"}},
      "d": {"$ref": "#/$defs/d"}}, "$defs": {"t": {"type": "string"},
      "d": {"type": "object", "properties": {"s": {"type": "string"}, "x": {"type": "number"}}}}})";
  const auto read = [&](const std::string& text) {
    return read_with(ArgumentReader(':', "<|\"|>", {}, schema), text);
  };
  EXPECT_EQ(read("{b:true,any:false,n:null,i:12}"),
            R"({"b": true, "any": false, "n": null, "i": 12})");
  EXPECT_EQ(read("{b:True,any:None,o:None,n:False}"),
            R"({"b": true, "any": null, "o": null, "n": "False"})");
  EXPECT_EQ(read("{s:true,o:12,n:-1.5}"), R"({"s": "true", "o": "12", "n": "-1.5"})");
  EXPECT_EQ(read("{s:None,i:null}"), R"({"s": "None", "i": "null"})");
  EXPECT_EQ(read("{s:007,n:2024-01-05,i:1.2.3}"),
            R"({"s": "007", "n": "2024-01-05", "i": "1.2.3"})");
  EXPECT_EQ(read("{s:<|\"|>true<|\"|>,any:<|\"|>1<|\"|>}"), R"({"s": "true", "any": "1"})");
  EXPECT_EQ(read("{l:[1,true,<|\"|>x<|\"|>],d:{s:1,x:2,y:3},b:false}"),
            R"({"l": ["1", "true", "x"], "d": {"s": "1", "x": 2, "y": 3}, "b": false})");
  EXPECT_EQ(read("{l:[[1]],any:[1,{s:2}]}"), R"({"l": [[1]], "any": [1, {"s": 2}]})");
  EXPECT_EQ(read("{s:Rome}"), "bad Rome}");
  EXPECT_EQ(read("{any:007}"), "bad 007}");
}

TEST(ArgumentReaderTest, NamesWithMarks) {
  const std::vector<std::string> names = {"a", "a[b]", "a[b", "a:b", "x=", "", "'q'", ")"};
  const auto read = [&](char assign, const std::string& text) {
    return read_with(ArgumentReader(assign, {}, names), text);
  };
  EXPECT_EQ(read('=', "(a=1, a[b]='x', a[b='y', a:b=2)"),
            R"({"a": 1, "a[b]": "x", "a[b": "y", "a:b": 2})");
  EXPECT_EQ(read('=', "(x==1, =2, 'q'=3)"), R"({"x=": 1, "": 2, "'q'": 3})");
  EXPECT_EQ(read(':', "{a:1,a[b]:'x',a:b:2,'q':3}"),
            R"({"a": 1, "a[b]": "x", "a:b": 2, "'q'": 3})");
  EXPECT_EQ(read('=', "(a[c]=1)"), "bad a[c]=1)");
  EXPECT_EQ(read('=', "(a[b"), "more");
}

TEST(ArgumentReaderTest, LongTextsByteByByte) {
  for (const std::string quote : {"'", "\""}) {
    std::string code;
    while (code.size() < 200'000) code += "f(x) 'y' \"z\"  \\\\ [1]\n";
    const std::string read = python("(a=" + quote + code + quote + ")");
    EXPECT_TRUE(read.starts_with("{\"a\": \"f(x)")) << read.substr(0, 40);
    EXPECT_GT(read.size(), code.size());
  }
}

// Whatever the pieces, the outcome is the same in every cut, and what is read is JSON.
TEST(ArgumentReaderTest, RandomArguments) {
  const std::vector<std::string> pieces = {"a", "=",  ":",  ",",  " ", "'", "\"",   "\\",
                                           "[", "]",  "{",  "}",  ")", "1", "-2.5", "True",
                                           "x", "\n", "a=", "''", "u", "4", "\\u",  "<|\"|>"};
  std::mt19937 random(40);
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (std::size_t n = 1 + random() % 16; n > 0; --n) text += pieces[random() % pieces.size()];
    python("(a=" + text + ")");
    gemma("{a:" + text + "}");
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace qsf_tools
