# SPDX-License-Identifier: MIT
#
# Shared by ./quickstart, ./test and ./check: the packages of a Debian or Ubuntu machine and how to
# install those that are missing. Sourced by bash, from the root of the repository.
#
# shellcheck shell=bash disable=SC2034

build_packages=(g++ cmake ninja-build ccache pkg-config
                liblz4-dev libzstd-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev libcli11-dev
                libedit-dev liburing-dev libeigen3-dev)
test_packages=(libgtest-dev libgmock-dev python3 python3-pytest python3-numpy binutils make)
# The kernels for AArch64, tested on any other machine.
if [ "$(dpkg --print-architecture 2>/dev/null)" != arm64 ]; then
  test_packages+=(g++-aarch64-linux-gnu qemu-user googletest)
fi
# What makes one check possible; where the release does not have it, that check is skipped and says so.
optional_test_packages=(clang-format-14 mandoc zsh fish lintian debootstrap)
# What scripts/models/get_models needs.
model_packages=(python3 python3-pip)

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Debian 12 has two versions of Boost; the newer one is what the server is tested with. The release
# is asked, not apt, whose lists may be absent.
if grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
  build_packages+=(libboost1.81-dev)
else
  build_packages+=(libboost-dev)
fi

# Prints those of the named packages that are not installed.
missing_of() {
  local package
  for package in "$@"; do
    is_installed "$package" || printf '%s\n' "$package"
  done
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "not root and no sudo here; as root, run: $*"
  fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

# Installs the named packages that are missing. Asks the network for nothing when none is.
install_missing() {
  local missing
  mapfile -t missing < <(missing_of "$@")
  [ "${#missing[@]}" -eq 0 ] && return
  say "installing: ${missing[*]}"
  apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 && return
  # The package lists may be absent or stale, as on a fresh machine.
  apt_get update || die "apt-get update failed; these packages are missing: ${missing[*]}"
  apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

# Like install_missing, for packages that this release may not have.
install_if_offered() {
  local package policy
  for package in $(missing_of "$@"); do
    policy=$(apt-cache policy "$package" 2>/dev/null || true)
    case $policy in
      *'Candidate: (none)'* | '') ;;
      *) install_missing "$package" ;;
    esac
  done
}

# Ends the program when dpkg or a new enough CMake is absent.
require_machine() {
  command -v dpkg-query >/dev/null || die "no dpkg: this command supports only Debian and Ubuntu; docs/installing.md names the packages and the cmake commands for other systems"
}

require_cmake() {
  local found
  found=$(cmake --version | sed -n '1s/.* //p')
  [ "$(printf '%s\n3.25\n' "$found" | sort -V | head -n 1)" = 3.25 ] ||
    die "CMake $found is too old: 3.25 is needed (Debian 12, Ubuntu 24.04 or newer have it)"
}

# Writes SHA256SUMS of all files in a folder, apart from it and its signatures.
write_sums() {
  (cd "$1" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\0' | sort -z |
    xargs -0 -r sha256sum >SHA256SUMS)
}
