#!/usr/bin/env bash
# Prints the path of a Python that has the pinned torch, or the version that is its argument. If there
# is none it prints nothing and exits with status 1. It tries LIBTORCH_ROOT (a site-packages/torch
# folder), python3, then .deps/venv and .deps/torch-VERSION.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wanted=${1:-$(sed -n 's/^torch==//p' "$root/scripts/requirements.txt")}

has_torch() {
  local found
  # Runs outside the tree, so that no file here is imported as a package. The suffix of the version
  # (such as +cu130) is ignored.
  found=$(cd / && "$1" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null) &&
    [ "${found%%+*}" = "$wanted" ]
}

candidates=()
if [ -n "${LIBTORCH_ROOT:-}" ]; then
  candidates+=("$(realpath -m "$LIBTORCH_ROOT/../../../../bin/python3" -s)")
fi
candidates+=("$(command -v python3 || true)" "$root/.deps/venv/bin/python3"
  "$root/.deps/torch-$wanted/bin/python3")
for python in "${candidates[@]}"; do
  if [ -x "$python" ] && has_torch "$python"; then
    echo "$python"
    exit 0
  fi
done
exit 1
