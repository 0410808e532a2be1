#!/usr/bin/env bash
# Builds the release, measures it and prints a page for docs/benchmarks: the machine, the date, the
# commit and the table. Without --trainer: mgpu-run against the torchrun of the pinned torch, in 10
# to 15 minutes.
#   scripts/bench.sh                      everything
#   scripts/bench.sh --torchrun-runs 10   fewer runs of torchrun, each of which takes seconds
#   scripts/bench.sh --quick              3 runs of each, two minutes
# With --trainer: mgpu-train beside the other programs that the machine with GPUs has.
#   scripts/bench.sh --trainer            everything, some hours
#   scripts/bench.sh --trainer --quick    a few cases in two minutes
#   scripts/bench.sh --trainer --help     the other options
# With MGPU_BIN, a folder of programs, --trainer builds nothing.
# Progress goes to stderr. The exit status is 1 if a limit is missed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage="Usage: scripts/bench.sh [--quick] [--runs N] [--torchrun-runs N]
       scripts/bench.sh --trainer [OPTION...]    (--trainer --help lists the options)"
if [ "${1:-}" = --trainer ]; then
  shift
  # Help and wrong options come before the build. Set-up also installs Python.
  case " $* " in *" --help "* | *" -h "*) exec python3 -B tests/bench/trainer_bench.py --help ;; esac
  if command -v python3 >/dev/null; then python3 -B tests/bench/trainer_bench.py "$@" --list >/dev/null; fi
  if [ -z "${MGPU_BIN:-}" ]; then
    {
      scripts/setup.sh --torch
      cmake --preset release
      cmake --build --preset release --target mgpu-run mgpu-train step_bench rollout_bench
    } >&2
  fi
  python=$(scripts/torch_python.sh 2>/dev/null || command -v python3)
  exec python3 -B tests/bench/trainer_bench.py --python "$python" "$@"
fi
words=("$@")
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) echo "$usage"; exit 0 ;;
    --quick) ;;
    --runs | --torchrun-runs)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "bench: $1 needs a number" >&2; exit 2; }
      shift ;;
    *) echo "bench: unknown option $1; see scripts/bench.sh --help" >&2; exit 2 ;;
  esac
  shift
done
set -- "${words[@]}"
{
  scripts/setup.sh --torch
  cmake --preset release
  cmake --build --preset release --target mgpu-run stamp store_bench nodes_bench
} >&2
python=$(scripts/torch_python.sh)
torch=$("$python" -c 'import importlib.metadata as m; print(m.version("torch"))')
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo "not known")
[ -z "$(git status --porcelain -- :!docs/benchmarks 2>/dev/null)" ] || commit="$commit with changes"

cat <<PAGE
# The launcher beside torchrun

| | |
| --- | --- |
| date | $(date -u +%F) |
| commit | $commit |
| processor | $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores |
| memory | $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo) |
| system | $(. /etc/os-release && echo "$PRETTY_NAME"), Linux $(uname -r | grep -oE "^[0-9.]+") |
| load before | $(cut -d ' ' -f 1-3 /proc/loadavg) |
| torchrun | of torch $torch |

PAGE
status=0
python3 tests/bench/launcher_bench.py --mgpu-run build/bin/mgpu-run \
  --torchrun "$(dirname "$python")/torchrun" --store-bench build/bin/store_bench "$@" ||
  status=1

printf '\n## Multi-node jobs\n\n'
build/bin/nodes_bench || status=1
echo
if [ "$(id -u)" = 0 ]; then
  python3 -B tests/bench/nodes_loss_bench.py || [ $? = 77 ] || status=1
  python3 -B tests/bench/store_relay_bench.py || [ $? = 77 ] || status=1
fi
exit "$status"
