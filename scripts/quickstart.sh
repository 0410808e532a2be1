#!/usr/bin/env bash
# Installs what is missing, builds mgpu-run and mgpu-train, and runs the main job: two ranks train a
# tiny model from scratch to add numbers, and the model then answers a prompt. It can be run again:
# it skips what is there, and training resumes from the newest checkpoint in output/quickstart.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage="Usage: scripts/quickstart.sh
Installs what is missing, builds mgpu-run and mgpu-train, and trains a tiny model on two ranks."
case ${1:-} in
  "") ;;
  -h | --help) echo "$usage"; exit 0 ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
say() { printf 'quickstart: [%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

needed_gib=8  # .deps 5.1, build 0.7, packages 0.6, and what pip and the compiler write meanwhile
cat <<END
quickstart: this script
  1. installs compilers and libraries with apt, where they are missing       0.6 GiB, 0.5 minutes
  2. installs torch into .deps/venv, unless python3 or LIBTORCH_ROOT has it   5 GiB,   1.5 minutes
  3. builds mgpu-run and mgpu-train into build/                               0.7 GiB, 5 minutes
  4. trains a tiny model on 2 ranks into output/quickstart and asks it        1 minute
The times are those of 2 cores and a fast network; steps 2 and 3 overlap.
END
free_gib=$(($(df -Pk . | awk 'NR == 2 {print $4}') / 1048576))
if [ ! -x build/bin/mgpu-train ] && [ "$free_gib" -lt "$needed_gib" ]; then
  echo "quickstart: $PWD has $free_gib GiB of free disk space; $needed_gib GiB are needed" >&2
  exit 1
fi

export NINJA_STATUS="[%f/%t, %e s] "
say "steps 1 and 2: what is missing, and the components that do not need torch"
scripts/prepare.sh
say "step 3: building build/bin/mgpu-run and build/bin/mgpu-train"
cmake --preset release >/dev/null
cmake --build --preset release --target mgpu-run mgpu-train

environment=()
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
if [ "$gpus" = 1 ]; then
  say "2 ranks and 1 GPU: the job runs on the CPU"
  environment+=("CUDA_VISIBLE_DEVICES=")
fi
run() {
  say "running $*"
  env "${environment[@]}" "$@"
}
say "step 4: the job"
run build/bin/mgpu-run --nproc 2 docs/examples/quickstart.yaml
run build/bin/mgpu-train generate --model output/quickstart --prompt "117+845= 7+5="
say "done"
