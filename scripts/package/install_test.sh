#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Test of cmake/install.cmake and cmake/library.cmake: installs a build, moves what was installed,
# and uses it as a user would. The tools are all there; qsf-run finds the bundled model from its own
# place, through PATH and a link too; the example programs build with pkg-config, with CMake and
# with other compilers and linkers than the archive's, and run, with the shared library as well.
#
#   install_test.sh CMAKE BUILD_DIR [C_COMPILER [SANITIZERS]]
set -euo pipefail
cmake=$1 build=$(cd "$2" && pwd) compiler=${3:-cc} sanitizers=${4:-}
sanitizers=${sanitizers//;/,}
scratch=$build/install_test
log=$build/install_test.log

fail() {
  echo "install_test: $*" >&2
  [ ! -s "$log" ] || tail -n 20 "$log" >&2
  exit 1
}

# Runs a command whose output only a failure shows.
quietly() { "$@" >"$log" 2>&1; }

rm -rf "$scratch"
mkdir -p "$scratch"
trap 'rm -rf "$scratch"' EXIT

# From another folder, so that nothing is found by luck.
tells_a_story() {
  local text
  text=$(cd / && "$@" --prompt "Once upon a time" --max-tokens 5 --seed 7 2>"$log") &&
    [ "${#text}" -gt 16 ]
}

quietly "$cmake" --install "$build" --prefix "$scratch/first" || fail "cmake --install failed"
# Nothing may remember where it was installed.
prefix=$scratch/moved
mv "$scratch/first" "$prefix"

n_tools=0
for built in "$build"/bin/qsf "$build"/bin/qsf-*; do
  [ -x "$built" ] && [ ! -d "$built" ] || continue
  n_tools=$((n_tools + 1))
  [ -x "$prefix/bin/${built##*/}" ] || fail "${built##*/} is built but not installed"
  quietly "$prefix/bin/${built##*/}" --version || fail "the installed ${built##*/} --version fails"
done
[ "$(readlink "$prefix/bin/qsf-run")" = qsf ] || fail "qsf-run is no link to the program beside it"
[ "$n_tools" -ge 4 ] || fail "only $n_tools tools in $build/bin"
[ "$(find "$prefix/share/man/man1" -name 'qsf*.1' | wc -l)" -eq "$n_tools" ] || fail "not a man page for every tool"

model=$prefix/share/qsf/models/tales-5M-4bit.qsf
[ -f "$model" ] || fail "the bundled model is not at $model"
tells_a_story "$prefix/bin/qsf-run" || fail "the installed qsf-run fails with its bundled model"
mkdir "$scratch/links"
ln -s "$prefix/bin/qsf-run" "$scratch/links/qsf-run"
PATH=$scratch/links:$PATH tells_a_story qsf-run || fail "qsf-run fails through PATH and a link"
mv "$model" "$model.away"
! tells_a_story "$prefix/bin/qsf-run" || fail "qsf-run took a bundled model that is not the installed one"
mv "$model.away" "$model"

DESTDIR=$scratch/destdir quietly "$cmake" --install "$build" --prefix /usr || fail "cmake --install below DESTDIR failed"
tells_a_story "$scratch/destdir/usr/bin/qsf-run" || fail "the qsf-run installed below DESTDIR fails"
(cd "$prefix" && find . | sort) >"$scratch/moved.txt"
(cd "$scratch/destdir/usr" && find . | sort) >"$scratch/destdir.txt"
quietly diff "$scratch/moved.txt" "$scratch/destdir.txt" || fail "prefix and DESTDIR give different files"

archive=$(find "$prefix" -name libqsf.a)
[ -n "$archive" ] || fail "no libqsf.a under $prefix"
if grep -rlF "$scratch" "$prefix" --include='*.pc' --include='*.cmake' >"$log"; then
  fail "these files hold the path they were installed to"
fi

# Runs the program that was built as $1 and demands a text that goes on.
says_hello() {
  local text
  text=$("$1" "$model" "Once upon a time" 2>"$log") && [ "${#text}" -gt 20 ]
}

examples=$prefix/share/doc/qsf/examples
flags="-Wall -Werror"
[ -z "$sanitizers" ] || flags+=" -fsanitize=$sanitizers"

pkg_config_path=${archive%/*}/pkgconfig
if command -v pkg-config >/dev/null && command -v make >/dev/null; then
  [ "$(PKG_CONFIG_PATH=$pkg_config_path pkg-config --modversion qsf)" = \
    "$("$prefix/bin/qsf-run" --version | sed 's/.* //')" ] || fail "qsf.pc and qsf-run differ in version"
  # The libraries of a compiler differ when they sanitise; the others must all link.
  compilers=("$compiler")
  echo "int main(void) { return 0; }" >"$scratch/empty.c"
  if [ -z "$sanitizers" ]; then
    compilers+=("$compiler -fno-lto")
    # Some systems keep the C library's archive in a package of its own.
    ! quietly "$compiler" -static -o "$scratch/empty" "$scratch/empty.c" || compilers+=("$compiler -static")
    ! command -v clang >/dev/null || compilers+=("clang")
    ! { command -v clang && command -v ld.lld; } >/dev/null || compilers+=("clang -fuse-ld=lld")
  fi
  for with in "${compilers[@]}"; do
    PKG_CONFIG_PATH=$pkg_config_path quietly make -B -C "$examples/pkg_config" STATIC=1 CC="$with" CFLAGS="$flags" ||
      fail "examples/pkg_config does not build with $with"
    says_hello "$examples/pkg_config/hello" || fail "examples/pkg_config, built with $with, fails"
  done
  shared=$(find "$prefix" -name libqsf.so)
  if [ -n "$shared" ]; then
    PKG_CONFIG_PATH=$pkg_config_path quietly make -B -C "$examples/pkg_config" CC="$compiler" CFLAGS="$flags" ||
      fail "examples/pkg_config does not build with libqsf.so"
    quietly grep -F libqsf.so.0 "$examples/pkg_config/hello" || fail "examples/pkg_config does not need libqsf.so.0"
    LD_LIBRARY_PATH=${shared%/*} says_hello "$examples/pkg_config/hello" ||
      fail "examples/pkg_config fails with libqsf.so"
  elif [ -z "$sanitizers" ]; then
    fail "no libqsf.so under $prefix"
  fi
else
  fail "pkg-config and make are needed to test the installed library"
fi

quietly "$cmake" -S "$examples/cmake_package" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$compiler" -DCMAKE_C_FLAGS="$flags" ||
  fail "examples/cmake_package does not find the installed library"
quietly "$cmake" --build "$scratch/cmake" || fail "examples/cmake_package does not build"
says_hello "$scratch/cmake/hello" || fail "examples/cmake_package fails on the bundled model"
if [ -n "${shared:-}" ]; then
  { quietly "$cmake" -DQSF_TARGET=qsf::shared "$scratch/cmake" && quietly "$cmake" --build "$scratch/cmake"; } ||
    fail "examples/cmake_package does not build with qsf::shared"
  says_hello "$scratch/cmake/hello" || fail "examples/cmake_package fails with qsf::shared"
fi
echo "install_test: $n_tools tools, model, header and archive work; linked by: $(printf '%s; ' "${compilers[@]}")CMake"
