#!/usr/bin/env bash
# Installs what is missing, builds mgpu-run and runs the main job: four workers of a small real
# PyTorch program. Can be run again; it skips what is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --torch
echo "quickstart: building build/bin/mgpu-run"
cmake --preset release >/dev/null
cmake --build --preset release --target mgpu-run

environment=("PYTHON_EXEC=$(scripts/torch_python.sh)")
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
if [ "$gpus" -gt 0 ] && [ "$gpus" -lt 4 ]; then
  echo "quickstart: 4 workers and $gpus GPUs, so the job runs on the CPU"
  environment+=("CUDA_VISIBLE_DEVICES=")
fi
command=(build/bin/mgpu-run --nproc 4 docs/examples/hello_ddp.py)
echo "quickstart: running ${environment[*]} ${command[*]}"
exec env "${environment[@]}" "${command[@]}"
