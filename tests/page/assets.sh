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

installed() { # package of Debian, programs of which one is enough
  local program as_root=()
  for program in "${@:2}"; do
    if command -v "$program"; then return; fi
  done
  command -v apt-get >/dev/null || fail "there is no $2, and no apt-get to install it; install it and run this again"
  if [[ $(id -u) != 0 ]]; then
    sudo -n true 2>/dev/null || fail "there is no $2; install it as root (apt-get install $1) and run this again"
    as_root=(sudo -n)
  fi
  say "installing $1" >&2
  "${as_root[@]}" apt-get update --quiet >/dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends "$1" >/dev/null
  command -v "$2"
}

# The same names as in browser.py.
browser=$(installed chromium chromium chromium-browser google-chrome)
if [[ ! -s $folder/axe.min.js ]]; then
  installed npm npm >/dev/null
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  (cd "$scratch" && npm pack --silent "axe-core@$version" >/dev/null)
  found=$(sha512sum "$scratch/axe-core-$version.tgz" | cut -d ' ' -f 1)
  [[ $found == "$digest" ]] || fail "digest of axe-core-$version.tgz is $found, expected $digest"
  tar -xzf "$scratch/axe-core-$version.tgz" -C "$scratch" package/axe.min.js
  mkdir -p "$folder"
  mv "$scratch/package/axe.min.js" "$folder/axe.min.js"
fi
say "$("$browser" --version 2>/dev/null), axe-core $version in $folder"
