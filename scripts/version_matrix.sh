#!/usr/bin/env bash
# Builds against versions of torch, runs the tests in which LibTorch takes part, and prints a row of
# a Markdown table for each version: docs/dependencies.md holds such a table.
#
#   scripts/version_matrix.sh 2.10.0 2.11.0
#
# CXX chooses the compiler, PYTHONPATH can put other versions of the Python packages first. The build
# folders, build-torch-VERSION, remember their compiler. Programs run with low priority.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage="Usage: scripts/version_matrix.sh VERSION..."
case ${1:-} in
  -h | --help) echo "$usage"; exit 0 ;;
  "" | -*) echo "$usage" >&2; exit 2 ;;
esac
renice -n 19 $$ >/dev/null
peers=(test_training test_gradients test_grpo test_resume test_qlora test_adapter_path test_files)

versions_of() {
  (cd / && "$1" -c '
import importlib.metadata as m, sys
print(", ".join(f"{name} {m.version(name)}" for name in sys.argv[1:]))' "${@:2}")
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
  scripts/build.sh "--torch=$version"
  scripts/setup.sh --tests "--torch=$version"
  python=$(scripts/torch_python.sh "$version")
  folder=$PWD/build-torch-$version
  cuda=$(cd / && "$python" -c 'import torch; print("CUDA", torch.version.cuda, "NCCL", ".".join(map(str, torch.cuda.nccl.version())))')
  compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$folder/CMakeCache.txt")
  rows+=("| $version ($cuda) | $("$compiler" --version | head -1) | $(cmake --version | head -1) |\
 $(versions_of "$python" transformers peft accelerate bitsandbytes) | $(run_tests "$folder" "$python") |")
done
echo "commit $(git rev-parse --short HEAD), $(date -I)"
echo "| torch | compiler | CMake | packages of the tests | result |"
echo "| --- | --- | --- | --- | --- |"
printf '%s\n' "${rows[@]}"
