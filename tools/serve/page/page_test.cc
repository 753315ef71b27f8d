// SPDX-License-Identifier: MIT
#include "tools/serve/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "tools/serve/http/http_exchange.h"

namespace qsf_tools {
namespace {

using ::testing::HasSubstr;

std::string read_source(const std::string& name) {
  std::ifstream file(std::string(QSF_SOURCE_DIR) + "/tools/serve/page/" + name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string header_of(const HttpResponse& response, std::string_view name) {
  std::string value;
  for (const HttpHeader& header : response.headers) {
    if (header.name != name) continue;
    EXPECT_EQ(value, "") << name << " is there twice";
    value = header.value;
  }
  return value;
}

TEST(Page, HoldsEveryFileAsItIs) {
  std::istringstream lines(read_source("page_files.txt"));
  std::string line;
  std::size_t n_files = 0;
  while (std::getline(lines, line)) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string path;
    std::string name;
    words >> path >> name;
    const PageFile* file = find_page_file(path);
    ASSERT_NE(file, nullptr) << path;
    EXPECT_EQ(file->path, path);
    EXPECT_TRUE(file->bytes == read_source(name)) << name;
    EXPECT_TRUE(line.ends_with(" " + std::string(file->content_type))) << line;
    n_files++;
  }
  EXPECT_GT(n_files, 10U);
  EXPECT_EQ(page_files().size(), n_files);
}

TEST(Page, FindsOnlyItsPaths) {
  for (const char* path : {"", "/index.html", "/page", "/page/", "/page/nothing.js",
                           "/PAGE/page.css", "/page/../page/page.css", "//"}) {
    EXPECT_EQ(find_page_file(path), nullptr) << path;
  }
}

// A module that the list forgot would be a page that does not start.
TEST(Page, EveryImportIsAFile) {
  std::size_t n_imports = 0;
  for (const PageFile& file : page_files()) {
    std::size_t at = 0;
    const std::string begin = "from \"./";
    while ((at = file.bytes.find(begin, at)) != std::string_view::npos) {
      at += begin.size();
      const std::string_view name = file.bytes.substr(at, file.bytes.find('"', at) - at);
      EXPECT_NE(find_page_file("/page/" + std::string(name)), nullptr)
          << file.path << " imports " << name;
      n_imports++;
    }
  }
  EXPECT_GT(n_imports, 10U);
}

TEST(Page, EntityTagsDiffer) {
  std::set<std::string_view> tags;
  for (const PageFile& file : page_files()) {
    EXPECT_EQ(file.etag.size(), 34U) << file.path;
    tags.insert(file.etag);
  }
  EXPECT_EQ(tags.size(), page_files().size());
}

TEST(Page, RespondsWithTheFileAndItsHeaders) {
  const PageFile* file = find_page_file("/");
  ASSERT_NE(file, nullptr);
  const HttpResponse response = page_response(*file, "");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.body == file->bytes);
  EXPECT_EQ(header_of(response, "Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(header_of(response, "ETag"), file->etag);
  EXPECT_EQ(header_of(response, "X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(header_of(response, "Referrer-Policy"), "no-referrer");
  const std::string policy = header_of(response, "Content-Security-Policy");
  for (const char* part :
       {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
        "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"}) {
    EXPECT_THAT(policy, HasSubstr(part));
  }
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
}

TEST(Page, RespondsWithoutTheFileToItsTag) {
  const PageFile* file = find_page_file("/page/main.js");
  ASSERT_NE(file, nullptr);
  const std::string tag(file->etag);
  for (const std::string& value : {tag, "W/" + tag, "\"other\", " + tag + " ", std::string("*")}) {
    const HttpResponse response = page_response(*file, value);
    EXPECT_EQ(response.status, 304) << value;
    EXPECT_EQ(response.body, "") << value;
    EXPECT_EQ(header_of(response, "ETag"), tag) << value;
    EXPECT_EQ(header_of(response, "Content-Type"), "") << value;
  }
  for (const std::string& value :
       {std::string(), std::string("\"other\""), tag.substr(1), tag + "x", std::string(",,"),
        std::string(" , \t"), std::string("W/")}) {
    EXPECT_EQ(page_response(*file, value).status, 200) << value;
  }
}

}  // namespace
}  // namespace qsf_tools
