#!/usr/bin/env bash
# Chromium for `make screens`, from the system's packages (Debian and its kin); as root, or with sudo.
set -euo pipefail
if command -v chromium >/dev/null; then
  chromium --version
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "no apt-get here: install Chromium by the system's own means, as the command chromium" >&2
  exit 1
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update
"${as_root[@]}" apt-get install -y --no-install-recommends chromium
chromium --version
