#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Test of the Python package on machines that have nothing else: in fresh Debian root file systems
# with their own Python, pip installs the wheel into a virtual environment, and the package's tests
# run there.
#
#   wheel_rootfs_test.sh WHEEL [SUITE...]
#
#   SUITE   bookworm (Python 3.11), trixie (3.13) or forky (3.14); default: all of them
#
# Needs root and debootstrap, and a Debian mirror, which is the one apt uses here; unpacked root file
# systems are kept in build/rootfs for the next time. Ends with 77 and a reason where nothing ran,
# and names a suite that could not be made.
set -euo pipefail
[ $# -ge 1 ] && [ -f "$1" ] || { echo "usage: wheel_rootfs_test.sh WHEEL [SUITE...]" >&2; exit 2; }
wheel=$(realpath "$1")
shift
suites=("$@")
[ $# -gt 0 ] || suites=(bookworm trixie forky)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
log=$PWD/build/rootfs/wheel_test.log

skip() {
  echo "wheel_rootfs_test: $*"
  exit 77
}

fail() {
  echo "wheel_rootfs_test: $*" >&2
  tail -n 40 "$log" >&2
  exit 1
}

[ "$(id -u)" -eq 0 ] || skip "needs root, for chroot"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
address=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
[ -n "$address" ] || skip "apt here has no mirror of Debian"
mkdir -p build/rootfs
scratch=$(mktemp -d "$PWD/build/rootfs/wheel.XXXXXX")
root=$scratch/root

unmount_all() {
  awk -v folder="$scratch/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
}
remove_scratch() {
  unmount_all
  rm -rf --one-file-system "$scratch"
}
trap remove_scratch EXIT
trap 'exit 1' INT TERM

quietly() { "$@" >"$log" 2>&1 </dev/null; }
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }

# Unpacks a suite with Python, pytest and NumPy into $root. debootstrap has no script for suites
# that are younger than itself, but they are made like sid.
make_root() {
  local suite=$1 cache script=
  cache=build/rootfs/python-$suite-$(dpkg --print-architecture).tar
  if [ ! -f "$cache" ]; then
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=/usr/share/debootstrap/scripts/sid
    quietly debootstrap --variant=minbase --include=python3-venv,python3-numpy,python3-pytest,gcc,libc6-dev \
      "$suite" "$root" "$address" $script || return 1
    rm -rf "$root"/var/cache/apt/archives/*.deb
    tar -C "$root" --numeric-owner -cf "$cache.partial" .
    mv "$cache.partial" "$cache"
    rm -rf --one-file-system "$root"
  fi
  mkdir "$root"
  tar -C "$root" --numeric-owner -xf "$cache"
  mount -t proc proc "$root/proc" && mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" &&
    ln -sf pts/ptmx "$root/dev/ptmx"
}

n_run=0
for suite in "${suites[@]}"; do
  if ! make_root "$suite"; then
    tail -n 3 "$log"
    echo "wheel_rootfs_test: $suite was not tested: it could not be made here"
    unmount_all
    rm -rf --one-file-system "$root"
    continue
  fi
  # What the tests read of a checkout, but not the package, which shall be the installed one.
  mkdir "$root/qsf"
  git ls-files -z python/tests models include examples docs testdata/abi testdata/chat_model README.md \
    CHANGELOG.md pyproject.toml |
    tar --null -T - -c | tar -C "$root/qsf" -x
  cp "$wheel" "$root/qsf/"
  quietly inside python3 -m venv --system-site-packages /env || fail "$suite: no virtual environment"
  quietly inside /env/bin/pip install --no-index --no-deps "/qsf/${wheel##*/}" || fail "$suite: pip refuses the wheel"
  version=$(inside /env/bin/python3 -c 'import platform; print(platform.python_version())')
  tool=$(inside /env/bin/python3 -c 'import qsf, os; print(os.path.join(os.path.dirname(qsf.__file__), "bin", "qsf"))')
  quietly inside /usr/bin/env "QSF_TOOL=$tool" /env/bin/python3 -B -m pytest -q -p no:cacheprovider /qsf/python/tests ||
    fail "$suite, Python $version: tests fail"
  echo "wheel_rootfs_test: Debian $suite, Python $version: $(tail -n 1 "$log")"
  n_run=$((n_run + 1))
  unmount_all
  rm -rf --one-file-system "$root"
done
[ "$n_run" -gt 0 ] || skip "no suite could be made here"
