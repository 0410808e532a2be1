#!/usr/bin/env bash
# Installs what is missing for a release build, torch included, or with --tests for scripts/test.sh.
# While torch is downloaded, which takes a minute or two, the components of build/ that do not need
# it are compiled, with the flags that they have later.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage="Usage: scripts/prepare.sh [--tests]"
case ${1:-} in
  "" | --tests) ;;
  -h | --help) echo "$usage"; exit 0 ;;
  *) echo "$usage" >&2; exit 2 ;;
esac

if scripts/torch_python.sh >/dev/null 2>&1 || [ -n "${LIBTORCH_ROOT:-}" ]; then
  exec scripts/setup.sh "$@" --torch
fi
scripts/setup.sh "$@"
echo "prepare: installing torch in the background; compiling the components that do not need it"
mkdir -p .cache
scripts/setup.sh "$@" --torch >.cache/setup.log 2>&1 </dev/null &
torch=$!
trap 'kill $torch 2>/dev/null || true' EXIT
cmake --preset release -DMGPU_TORCH=OFF -DMGPU_TESTS=OFF >/dev/null
cmake --build --preset release --target mgpu-run mgpu_components
echo "prepare: waiting for torch"
status=0
wait "$torch" || status=$?
trap - EXIT
cat .cache/setup.log
exit "$status"
