#!/usr/bin/env bash
# Builds against versions of torch, runs the tests in which LibTorch takes part, and prints a row of
# a Markdown table for each version: docs/dependencies.md holds such a table.
#
#   scripts/version_matrix.sh 2.10.0 2.11.0
#
# CXX chooses the compiler, PYTHONPATH can put other versions of the Python packages first. nvcc is that
# beside torch or the first one on PATH of torch's major version of CUDA; with --cuda it is installed
# where it is missing, and a build without our kernels is an error. The build folders,
# build-torch-VERSION, remember their compilers. Programs run with low priority.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage="Usage: scripts/version_matrix.sh [--cuda] VERSION..."
needs_kernels=0
if [ "${1:-}" = --cuda ]; then needs_kernels=1; shift; fi
case ${1:-} in
  -h | --help) echo "$usage"; exit 0 ;;
  "" | -*) echo "$usage" >&2; exit 2 ;;
esac
renice -n 19 $$ >/dev/null
peers=(test_training test_gradients test_grpo test_grpo_resume test_grpo_reports test_resume
  test_qlora test_adapter_path test_files test_fake_gpus)

versions_of() {
  (cd / && "$1" -c '
import importlib.metadata as m, sys
print(", ".join(f"{name} {m.version(name)}" for name in sys.argv[1:]))' "${@:2}")
}

# Prints which CUDA compiler a build folder has used, and for which architectures.
cuda_compiler_of() {
  local nvcc
  nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=\(.*nvcc.*\)/\1/p' "$1/CMakeCache.txt")
  if grep -qs . "$1/architectures.txt"; then
    echo "nvcc $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p') for $(cat "$1/architectures.txt")"
  else
    echo "no nvcc"
  fi
}

# Prints how many tests passed, or what failed.
run_tests() {
  local folder=$1 python=$2 log=$1/version_matrix.log units=0 program file failed=()
  : >"$log"
  for program in "$folder"/bin/test_*; do
    echo "== $program" >>"$log"
    if "$program" >>"$log" 2>&1 </dev/null; then units=$((units + 1)); else failed+=("${program##*/}"); fi
  done
  for file in "${peers[@]}"; do
    echo "== $file" >>"$log"
    MGPU_BUILD=$folder MGPU_RUN=$folder/bin/mgpu-run MGPU_TORCH_PYTHON=$python \
      PYTHONPATH=$PWD/tests/support${PYTHONPATH:+:$PYTHONPATH} \
      "$python" -B -m unittest discover -v -s tests/peers -p "$file.py" >>"$log" 2>&1 </dev/null ||
      failed+=("peers/$file.py")
  done
  local cases skipped
  cases=$(awk '/^Ran [0-9]+ test/ { all += $2 } END { print all + 0 }' "$log")
  skipped=$(awk -F 'skipped=' '/^OK \(skipped=/ { all += $2 } END { print all + 0 }' "$log")
  if [ ${#failed[@]} -gt 0 ]; then
    echo "**failed: ${failed[*]}** (see $log)"
  else
    echo "$units test programs and $((cases - skipped)) tests of tests/peers passed, $skipped skipped"
  fi
}

rows=()
for version in "$@"; do
  if [ "$needs_kernels" = 1 ]; then scripts/setup.sh "--torch=$version" --cuda; fi
  scripts/build.sh "--torch=$version"
  scripts/setup.sh --tests "--torch=$version"
  python=$(scripts/torch_python.sh "$version")
  folder=$PWD/build-torch-$version
  cuda=$(cd / && "$python" -c 'import torch; print("CUDA", torch.version.cuda, "NCCL", ".".join(map(str, torch.cuda.nccl.version())))')
  nvcc=$(cuda_compiler_of "$folder")
  if [ "$needs_kernels" = 1 ] && [ "$nvcc" = "no nvcc" ]; then
    echo "version_matrix: $folder has no kernels; remove it and run this again" >&2
    exit 1
  fi
  compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$folder/CMakeCache.txt")
  rows+=("| $version ($cuda) | $("$compiler" --version | head -1), $nvcc | $(cmake --version | head -1) |\
 $(versions_of "$python" transformers peft accelerate bitsandbytes) | $(run_tests "$folder" "$python") |")
done
echo "commit $(git rev-parse --short HEAD), $(date -I)"
echo "| torch | compilers | CMake | packages of the tests | result |"
echo "| --- | --- | --- | --- | --- |"
printf '%s\n' "${rows[@]}"
