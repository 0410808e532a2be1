#!/usr/bin/env bash
# Builds a release into dist/: wheels of mgpu-run and mgpu-train, a .deb, a tarball, a Containerfile and
# SHA256SUMS. docs/releases.md describes them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Compute capabilities: code for each, and for the newest also PTX, which the driver compiles for GPUs
# of later generations.
architectures="75-real;80-real;86-real;89-real;90-real;100-real;120"
usage="Usage: scripts/package.sh [--build FOLDER] [--dist FOLDER]
  --build FOLDER  take the programs of this build folder as they are; without it they are built in
                  build-package, with kernels for compute capability 7.5 to 12.0 (on two cores a
                  quarter of an hour)
  --dist FOLDER   where the files are written [dist]
With MGPU_IMAGE=NAME it also builds the image of the Containerfile, with podman or docker."
build="" dist=dist
while [ $# -gt 0 ]; do
  case $1 in
    --build | --dist)
      [ $# -gt 1 ] || { echo "package: $1 needs a folder" >&2; exit 2; }
      if [ "$1" = --build ]; then build=$2; else dist=$2; fi
      shift ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) echo "package: unknown option $1; see scripts/package.sh --help" >&2; exit 2 ;;
  esac
  shift
done
if [ -z "$build" ]; then
  build=build-package
  scripts/setup.sh --torch --cuda
  cmake --preset release -B "$build" -DMGPU_TESTS=OFF -DCMAKE_CUDA_ARCHITECTURES="$architectures"
  if ! grep -qs . "$build/architectures.txt"; then  # without a compiler it is an empty line
    echo "package: $build has no kernels, because no CUDA compiler was found; see scripts/setup.sh --cuda" >&2
    exit 1
  fi
  cmake --build "$build" --target mgpu-run mgpu-train
fi
python3 scripts/release/build_release.py --build "$build" --dist "$dist"
if [ -z "${MGPU_IMAGE:-}" ]; then exit 0; fi
tool=$(command -v podman || command -v docker) || {
  echo "package: MGPU_IMAGE=$MGPU_IMAGE needs podman or docker, and neither is on PATH" >&2
  exit 1
}
"$tool" build -f "$dist/Containerfile" -t "$MGPU_IMAGE" "$dist"
