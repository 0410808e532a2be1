#!/usr/bin/env bash
# Installs what is missing and builds a preset of CMakePresets.json: release unless told otherwise.
# Programs land in build/bin, for other presets in build-<preset>/bin. With --torch=VERSION the
# release preset is built against that version of torch, in build-torch-VERSION.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage="Usage: scripts/build.sh [release|dev|asan|tsan|fuzz|--torch=VERSION]"
preset=${1:-release}
if [ $# -gt 1 ]; then echo "$usage" >&2; exit 2; fi
case $preset in
  -h | --help) echo "$usage"; exit 0 ;;
  --torch=?*)
    version=${preset#*=}
    folder=build-torch-$version
    scripts/setup.sh "$preset"
    python=$(scripts/torch_python.sh "$version")
    torch=$(cd / && "$python" -c \
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
    echo "build: torch $version in $folder"
    cmake --preset release -B "$folder" -DLIBTORCH_ROOT="$torch"
    cmake --build "$folder"
    exit 0
    ;;
  -*) echo "$usage" >&2; exit 2 ;;
  asan | fuzz) scripts/setup.sh --tests ;;
  release | dev) scripts/setup.sh --torch ;;
  *) scripts/setup.sh ;;
esac
echo "build: cmake --preset $preset && cmake --build --preset $preset"
cmake --preset "$preset"
cmake --build --preset "$preset"
