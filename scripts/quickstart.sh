#!/usr/bin/env bash
# Installs what is missing, builds mgpu-run and mgpu-train, and runs the main job: two ranks train a
# tiny model from scratch to add numbers, which then answers a prompt. Can be run again; it skips
# what is there, and training goes on from the newest checkpoint in output/quickstart.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --torch
echo "quickstart: building build/bin/mgpu-run and build/bin/mgpu-train"
cmake --preset release >/dev/null
cmake --build --preset release --target mgpu-run mgpu-train

environment=()
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
if [ "$gpus" = 1 ]; then
  echo "quickstart: 2 ranks and 1 GPU, so the job runs on the CPU"
  environment+=("CUDA_VISIBLE_DEVICES=")
fi
run() {
  echo "quickstart: running $*"
  env "${environment[@]}" "$@"
}
run build/bin/mgpu-run --nproc 2 docs/examples/quickstart.yaml
run build/bin/mgpu-train generate --model output/quickstart --prompt "117+845= 7+5="
