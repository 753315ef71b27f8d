#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Test of cmake/install.cmake: installs a build into a folder of its own and uses what lies there as
# a user would. The tools are all there, qsf-run finds the bundled model from its own place, and
# examples/hello.c builds against the header and the archive and runs.
#
#   install_test.sh CMAKE BUILD_DIR SOURCE_DIR C_COMPILER SANITIZERS
set -euo pipefail
cmake=$1 build=$2 source=$3 compiler=$4 sanitizers=${5//;/,}

fail() {
  echo "install_test: $*" >&2
  exit 1
}

prefix=$build/install_test
rm -rf "$prefix"
"$cmake" --install "$build" --prefix "$prefix" >"$build/install_test.log" ||
  fail "cmake --install failed; see $build/install_test.log"

for built in "$build"/bin/qsf-*; do
  [ -x "$built" ] || continue
  [ -x "$prefix/bin/${built##*/}" ] || fail "${built##*/} is built but not installed"
  "$prefix/bin/${built##*/}" --version >/dev/null || fail "the installed ${built##*/} --version fails"
done
[ -x "$prefix/bin/qsf-run" ] || fail "no qsf-run in $prefix/bin"

model=$prefix/share/qsf/models/tales-5M-4bit.qsf
[ -f "$model" ] || fail "the bundled model is not at $model"
# From another folder, so that nothing is found by luck.
text=$(cd / && "$prefix/bin/qsf-run" --prompt "Once upon a time" --max-tokens 5 --seed 7 2>/dev/null) ||
  fail "the installed qsf-run fails with its bundled model"
[ "${#text}" -gt 16 ] || fail "the installed qsf-run printed only: $text"

archive=$(find "$prefix" -name libqsf.a)
[ -n "$archive" ] || fail "no libqsf.a under $prefix"
flags=()
[ -z "$sanitizers" ] || flags=("-fsanitize=$sanitizers")
"$compiler" -std=c11 -Wall -Werror "${flags[@]}" -I "$prefix/include" "$source/examples/hello.c" "$archive" \
  -lpcre2-8 -lutf8proc -llz4 -lzstd -lstdc++ -lm -lpthread -o "$prefix/hello" ||
  fail "examples/hello.c does not build against the installed library"
"$prefix/hello" "$model" "Once upon a time" >"$prefix/hello.txt" || fail "examples/hello.c fails on the bundled model"
[ -s "$prefix/hello.txt" ] || fail "examples/hello.c printed nothing"
echo "install_test: tools, model, header and archive work from $prefix"
