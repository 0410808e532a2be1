#!/usr/bin/env bash
# Installs what is missing and builds a preset of CMakePresets.json: release unless told otherwise.
# Programs land in build/bin, for other presets in build-<preset>/bin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
case $preset in
  -h | --help) echo "Usage: scripts/build.sh [release|dev|asan|tsan|fuzz]"; exit 0 ;;
  fuzz) scripts/setup.sh --tests ;;
  release | dev) scripts/setup.sh --torch ;;
  *) scripts/setup.sh ;;
esac
echo "build: cmake --preset $preset && cmake --build --preset $preset"
cmake --preset "$preset"
cmake --build --preset "$preset"
