#!/usr/bin/env bash
# Prepares what the tests of the page need beside the packages of Python: Chromium, and axe-core in
# ${XDG_CACHE_HOME:-~/.cache}/berth/page/axe-core-<version>/axe.min.js. Chromium and, where it is missing, npm come
# from Debian through apt; axe-core comes from the package registry that npm is set up for, and is checked against the
# digest below. Does nothing if both are there.
set -euo pipefail
version=4.10.3
digest=5e6edba515e70d25f6604d9815f064d859c5d1ea7ab661bbc4f87c88779ef0c21cae0abbeb636471ef39e9d62d2582e4b88a1866f19f4ecfcf6d986275e4dc12

cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth/page
folder=$cache/axe-core-$version

say() { echo "page-assets: $*"; }
fail() { say "$*" >&2; exit 1; }

installed() { # program, package of Debian
  command -v "$1" >/dev/null && return
  command -v apt-get >/dev/null || fail "there is no $1, and no apt-get to install it; install it and run this again"
  [[ $(id -u) == 0 ]] || fail "there is no $1; install it as root (apt-get install $2) and run this again"
  say "installing $2"
  apt-get update --quiet >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends "$2" >/dev/null
}

installed chromium chromium
if [[ ! -s $folder/axe.min.js ]]; then
  installed npm npm
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  (cd "$scratch" && npm pack --silent "axe-core@$version" >/dev/null)
  found=$(sha512sum "$scratch/axe-core-$version.tgz" | cut -d ' ' -f 1)
  [[ $found == "$digest" ]] || fail "digest of axe-core-$version.tgz is $found, expected $digest"
  tar -xzf "$scratch/axe-core-$version.tgz" -C "$scratch" package/axe.min.js
  mkdir -p "$folder"
  mv "$scratch/package/axe.min.js" "$folder/axe.min.js"
fi
say "$(chromium --version 2>/dev/null), axe-core $version in $folder"
