#!/usr/bin/env bash
# Prepares what the tests of generated clients need beside the packages of Python: generators and checkers of clients in
# ${XDG_CACHE_HOME:-~/.cache}/berth/clients, from the package registries that npm and pip are set up for, with the
# versions in package.json and requirements.txt. Their packages are not among those of Berth, so they have an
# environment of their own. Does nothing if they are there.
set -euo pipefail
cd "$(dirname "$0")"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth/clients
wanted=$(cat package.json requirements.txt | sha512sum | cut -d ' ' -f 1)

say() { echo "client-assets: $*"; }
fail() { say "$*" >&2; exit 1; }

if [[ $(cat "$cache/ready" 2>/dev/null) != "$wanted" ]]; then
  command -v npm >/dev/null || fail "there is no npm; install Node.js 20 or newer and run this again"
  say "installing into $cache"
  rm -rf "$cache"
  mkdir -p "$cache"
  cp package.json "$cache"
  (cd "$cache" && npm install --silent --no-audit --no-fund --ignore-scripts --no-package-lock)
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
  echo "$wanted" >"$cache/ready"
fi
say "ready in $cache"
