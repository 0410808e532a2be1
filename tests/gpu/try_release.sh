#!/usr/bin/env bash
# Installs the wheels of a release into a fresh environment, trains and asks the quickstart, removes
# them again, and prints how long each step took. It needs nothing else of the source tree, so copy
# it and the wheels to the machine that you want to try, with GPUs or without.
set -euo pipefail
export LC_ALL=C
usage="Usage: try_release.sh FOLDER [--ranks N]
  FOLDER     has mgpu_run-*.whl and mgpu_train-*.whl
  --ranks N  ranks of the quickstart [1]
The torch of python3 is used; pip connects to nothing. PYTHON names another Python than python3,
TMPDIR another place than /tmp for the environment."
die() { echo "try_release: $*" >&2; exit 1; }

wheels="" ranks=1
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) [ $# -gt 1 ] || { echo "try_release: --ranks needs a number" >&2; exit 2; }
             ranks=$2; shift ;;
    -h | --help) echo "$usage"; exit 0 ;;
    -*) echo "try_release: unknown option $1; see try_release.sh --help" >&2; exit 2 ;;
    *) wheels=$1 ;;
  esac
  shift
done
[ -n "$wheels" ] || { echo "$usage" >&2; exit 2; }
wheels=$(cd "$wheels" && pwd)
for name in mgpu_run mgpu_train; do
  compgen -G "$wheels/$name-*.whl" >/dev/null || die "$wheels has no $name-*.whl"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/try-release-XXXXXX")
trap 'rm -rf "$work"' EXIT
rows=()

# Sets $cpu to the CPU time of all commands so far. `times` reports that of the shell it runs in.
take_cpu_time() {
  times >"$work/times"
  cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); print 60 * $1 + $2 + 60 * $3 + $4 }' "$work/times")
}

difference() { awk "BEGIN { printf \"%.2f s\", $2 - $1 }"; }

# Runs a command as a step: its output is shown, and kept in $work/output.
step() {
  local name=$1 begin end before
  shift
  echo "== $name"
  take_cpu_time
  before=$cpu begin=$EPOCHREALTIME
  "$@" 2>&1 | tee "$work/output" || die "\"$name\" failed with status $?"
  end=$EPOCHREALTIME
  take_cpu_time
  rows+=("| $name | $(difference "$begin" "$end") | $(difference "$before" "$cpu") |")
}

in_quickstart() { (cd "$work/quickstart" && "$@"); }

say_machine() {
  local gpu
  gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1) || gpu=""
  (. /etc/os-release && echo "$PRETTY_NAME, Linux $(uname -r), $("$python" --version), $(getconf GNU_LIBC_VERSION)")
  echo "$(sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo), $(nproc) CPUs, GPU: ${gpu:-none}"
  echo "torch $(cd / && "$python" -c 'import importlib.metadata as m; print(m.version("torch"))')"
}

# The files that pip has installed for the two packages.
installed_files() {
  "$python" -m pip show --files mgpu-run mgpu-train |
    awk '/^Location:/ { folder = $2 } /^  / { print folder "/" $1 }'
}

base=$(command -v "${PYTHON:-python3}") || die "there is no ${PYTHON:-python3}"  # not that of the environment
step "\`python3 -m venv --system-site-packages\`" "$base" -m venv --system-site-packages "$work/venv"
python=$work/venv/bin/python3
export PATH=$work/venv/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1
cd "$work"
step "\`pip install\` of both wheels, without dependencies" "$python" -m pip install --quiet \
  --no-index --no-deps "$wheels"/mgpu_run-*.whl "$wheels"/mgpu_train-*.whl
# A virtual environment has its packages where a second one does not look for them.
if ! "$python" -c 'import importlib.util as u; u.find_spec("torch") or exit(1)'; then
  folder=$(cd / && "$base" -c '
import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) ||
    die "$base has no torch"
  echo "${folder%/torch}" >"$(echo "$work"/venv/lib/python3*/site-packages)/torch.pth"
fi
for program in mgpu-run mgpu-train; do
  [ "$(command -v $program)" = "$work/venv/bin/$program" ] || die "$program is not in the environment"
done
# Its advice is shown; whether the programs work is seen below.
step "\`mgpu-run doctor\`" sh -c 'mgpu-run doctor || echo "exit status $?"'
step "\`mgpu-train quickstart\`" mgpu-train quickstart
step "\`mgpu-run --nproc $ranks quickstart.yaml\`" in_quickstart mgpu-run --nproc "$ranks" quickstart.yaml
steps=$(grep -o 'step [0-9]*/[0-9]*' "$work/output" | tail -1)
step "\`mgpu-train generate --model output/quickstart ...\`" in_quickstart mgpu-train generate \
  --model output/quickstart --prompt "117+845= 7+5="
answer=$(grep 'boxed{' "$work/output") || die "the model has not answered"

installed_files >"$work/files"
[ "$(wc -l <"$work/files")" -ge 10 ] || die "pip does not list the files of the packages"
step "\`pip uninstall\` of both" "$python" -m pip uninstall --quiet --yes mgpu-run mgpu-train
while read -r file; do [ ! -e "$file" ] || die "$file is left"; done <"$work/files"
left=$(find "$work/venv" -iname '*mgpu*')
[ -z "$left" ] || die "left: $left"

echo
say_machine
echo "$(cd "$wheels" && echo mgpu_run-*.whl), last step: $steps, answer: $answer"
echo
echo "| step | time | CPU time |"
echo "| --- | --- | --- |"
printf '%s\n' "${rows[@]}"
