#!/usr/bin/env bash
# Prints the Python that has the pinned torch, or nothing and status 1 if there is none. Looks at
# LIBTORCH_ROOT (a site-packages/torch folder), then the active python3, then .deps/venv.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wanted=$(sed -n 's/^torch==//p' "$root/scripts/requirements.txt")

has_torch() {
  local found
  # Outside of the tree, so that no file here is taken for a package; the build's suffix is dropped.
  found=$(cd / && "$1" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null) &&
    [ "${found%%+*}" = "$wanted" ]
}

candidates=()
if [ -n "${LIBTORCH_ROOT:-}" ]; then
  candidates+=("$(realpath -m "$LIBTORCH_ROOT/../../../../bin/python3" -s)")
fi
candidates+=("$(command -v python3 || true)" "$root/.deps/venv/bin/python3")
for python in "${candidates[@]}"; do
  if [ -x "$python" ] && has_torch "$python"; then
    echo "$python"
    exit 0
  fi
done
exit 1
