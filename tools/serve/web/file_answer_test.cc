// SPDX-License-Identifier: MIT

#include "tools/serve/web/file_answer.h"

#include <gtest/gtest.h>

namespace qsf_tools {
namespace {

constexpr std::string_view kTag = "\"a-1\"";
constexpr std::uint64_t kBytes = 100;

FileAnswer answer(std::vector<HttpHeader> headers, std::uint64_t file_bytes = kBytes) {
  HttpRequest request;
  request.headers = std::move(headers);
  return answer_file(request, file_bytes, kTag);
}

void expect(const FileAnswer& answer, int status, std::uint64_t first, std::uint64_t n_bytes) {
  EXPECT_EQ(answer.status, status);
  EXPECT_EQ(answer.first, first);
  EXPECT_EQ(answer.n_bytes, n_bytes);
}

TEST(FileAnswer, OneRange) {
  expect(answer({}), 200, 0, 100);
  expect(answer({{"Range", "bytes=0-0"}}), 206, 0, 1);
  expect(answer({{"range", "bytes=10-19"}}), 206, 10, 10);
  expect(answer({{"Range", "bytes=90-1000"}}), 206, 90, 10);
  expect(answer({{"Range", "bytes=99-"}}), 206, 99, 1);
  expect(answer({{"Range", "bytes=-7"}}), 206, 93, 7);
  expect(answer({{"Range", "bytes=-700"}}), 206, 0, 100);
  expect(answer({{"Range", "bytes=5-18446744073709551615"}}), 206, 5, 95);
}

TEST(FileAnswer, RangesThatHaveNothing) {
  expect(answer({{"Range", "bytes=100-"}}), 416, 0, 0);
  expect(answer({{"Range", "bytes=18446744073709551615-"}}), 416, 0, 0);
  expect(answer({{"Range", "bytes=-0"}}), 416, 0, 0);
  expect(answer({{"Range", "bytes=-5"}}, 0), 416, 0, 0);
}

TEST(FileAnswer, RangesThatAreNotUnderstood) {
  for (const char* range :
       {"bytes=", "bytes=-", "bytes=5", "bytes=9-5", "bytes=0-1,4-5", "bytes=a-b", "bytes= 1 - 2",
        "bytes=+1-2", "bytes=1--2", "lines=1-2", "bytes=99999999999999999999-"}) {
    SCOPED_TRACE(range);
    expect(answer({{"Range", range}}), 200, 0, 100);
  }
}

TEST(FileAnswer, ConditionsComeFirst) {
  expect(answer({{"If-Match", "\"a-1\""}, {"Range", "bytes=1-2"}}), 206, 1, 2);
  expect(answer({{"If-Match", "*"}}), 200, 0, 100);
  expect(answer({{"If-Match", "\"b\", \"a-1\""}}), 200, 0, 100);
  expect(answer({{"If-Match", "\"b\""}, {"Range", "bytes=1-2"}}), 412, 0, 0);
  expect(answer({{"If-Match", "W/\"a-1\""}}), 412, 0, 0);
  expect(answer({{"If-None-Match", "W/\"a-1\""}, {"Range", "bytes=1-2"}}), 304, 0, 0);
  expect(answer({{"If-None-Match", "\"b\""}}), 200, 0, 100);
  expect(answer({{"If-Range", "\"a-1\""}, {"Range", "bytes=1-2"}}), 206, 1, 2);
  expect(answer({{"If-Range", "\"b\""}, {"Range", "bytes=1-2"}}), 200, 0, 100);
  expect(answer({{"If-Range", "W/\"a-1\""}, {"Range", "bytes=1-2"}}), 200, 0, 100);
  expect(answer({{"If-Range", "Wed, 01 Jan 2026 00:00:00 GMT"}, {"Range", "bytes=1-2"}}), 200, 0,
         100);
}

TEST(DecodedPath, DecodesOnce) {
  EXPECT_EQ(decoded_path("/web/a%20b.txt"), "/web/a b.txt");
  EXPECT_EQ(decoded_path("/web/%2e%2E/x"), "/web/../x");
  EXPECT_EQ(decoded_path("/web/%252e"), "/web/%2e");
  for (const char* wrong : {"/web/a%", "/web/a%2", "/web/%zz", "/web/a%00.txt"}) {
    EXPECT_EQ(decoded_path(wrong), "") << wrong;
  }
}

}  // namespace
}  // namespace qsf_tools
