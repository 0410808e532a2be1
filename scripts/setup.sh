#!/usr/bin/env bash
# Installs what building needs and is not there yet, on Debian 12 and 13 and Ubuntu 24.04, as root
# or with sudo. Needs no network when everything is there.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage="Usage: scripts/setup.sh [--tests] [--torch] [--cuda]
  --tests  also what scripts/test.sh needs: clang 19 with its tools, iproute2, nftables,
           procps, munge, Slurm, OpenSSH, etcd, openssl
  --torch  also the pinned torch, in .deps/venv, unless LIBTORCH_ROOT or python3 has it; on a
           machine with a GPU also --cuda
  --torch=VERSION
           another version instead, in .deps/torch-VERSION
  --cuda   also nvcc from PyPI's wheels, in .deps/venv, unless nvcc 13.0 is on PATH
With MGPU_NO_INSTALL=1 no system package is looked for or installed."

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

# Runs a command quietly; its output is shown only if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

boost_package() {
  local system
  system=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") || system=unknown
  case $system in
    "debian 12") echo libboost1.81-dev ;;
    "debian 13" | "ubuntu 24.04") echo libboost1.83-dev ;;
    *) die "cannot install packages on $system: only Debian 12, Debian 13 and Ubuntu 24.04 are" \
      "known; install those of scripts/setup.sh yourself and set MGPU_NO_INSTALL=1" ;;
  esac
}

install_packages() {
  local boost package missing=() as_root=()
  boost=$(boost_package)
  local wanted=(cmake ninja-build g++ ccache "$boost" libcli11-dev nlohmann-json3-dev
    libyaml-cpp-dev libfmt-dev libssl-dev libpcre2-dev libutf8proc-dev libxxhash-dev libgloo-dev
    catch2 python3-venv)
  if [ "$tests" = 1 ]; then
    wanted+=(clang-19 libclang-rt-19-dev clang-format-19 clang-tidy-19 iproute2 nftables
      procps munge slurm-wlm openssh-client openssh-server etcd-server etcd-client openssl)
  fi
  for package in "${wanted[@]}"; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: .* installed$' || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    say "all ${#wanted[@]} system packages are there"
    return
  fi
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "cannot install ${missing[*]}: run as root or install sudo"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  quietly "${as_root[@]}" update || die "apt-get update failed; is there a network?"
  quietly "${as_root[@]}" install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get install failed; on Ubuntu the component universe must be enabled"
}

# Installs one of our requirement files into the environment, which is made when it is not there.
install_wheels() {
  local python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  local file=$1
  [ -e "$file" ] || file=$root/scripts/$1
  [ -x "$venv/bin/pip" ] || quietly "$python" -m venv "$venv" || die "cannot make $venv"
  quietly "$venv/bin/pip" install --no-input --disable-pip-version-check "${@:2}" \
    -r "$file" ||
    die "pip could not install $1; is there a network?"
}

install_torch() {
  local python other
  if ! python=$("$root/scripts/torch_python.sh" "$version"); then
    say "installing torch $version into ${venv#"$root/"} (about a minute, 4.7 GiB)"
    if [ "$version" = "$pinned" ]; then
      install_wheels requirements.txt
    else
      other=$(mktemp)
      sed "s/^torch==.*/torch==$version/" "$root/scripts/requirements.txt" >"$other"
      install_wheels "$other"
      rm -f "$other"
    fi
    python=$("$root/scripts/torch_python.sh" "$version") || die "torch $version is not there after pip"
  fi
  say "torch $version: $python"
}

# Programs of PyPI beside torch, for the tests.
install_peers() {
  local python wanted
  python=$("$root/scripts/torch_python.sh" "$version")
  wanted='import accelerate, bitsandbytes, jinja2, math_verify, peft, safetensors, setproctitle, tensorboard, tokenizers, transformers
import importlib.util as u; u.find_spec("trl") or exit(1)'
  if (cd / && "$python" -c "$wanted") >/dev/null 2>&1; then return; fi
  [ "$python" = "$venv/bin/python3" ] ||
    die "$python lacks what tests/peers needs: pip install -r scripts/requirements-tests.txt"
  say "installing transformers, peft and others into ${venv#"$root/"}, for tests"
  install_wheels requirements-tests.txt
  install_wheels requirements-templates.txt --no-deps
}

nvcc_is_13_0() { "$1" --version 2>/dev/null | grep -q 'release 13\.0'; }

# The CUDA compiler a build would use: the toolkit's on PATH, else that of PyPI's wheels.
cuda_compiler() {
  local nvcc
  for nvcc in "$(command -v nvcc || true)" \
    "$root"/.deps/venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    if [ -x "$nvcc" ] && nvcc_is_13_0 "$nvcc"; then
      echo "$nvcc"
      return
    fi
  done
  return 1
}

gpu_is_there() { nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

say_cuda_compiler() {
  local nvcc
  if nvcc=$(cuda_compiler); then
    say "CUDA compiler: $nvcc (13.0)"
  else
    say "CUDA compiler: none (no nvcc 13.0 on PATH), a CPU build"
  fi
}

pinned=$(sed -n 's/^torch==//p' "$root/scripts/requirements.txt")
tests=0 torch=0 cuda=0 version=$pinned
for option in "$@"; do
  case $option in
    --tests) tests=1 ;;
    --torch) torch=1 ;;
    --torch=?*) torch=1 version=${option#*=} ;;
    --cuda) cuda=1 ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) echo "setup: unknown option $option; see scripts/setup.sh --help" >&2; exit 2 ;;
  esac
done
venv=$root/.deps/venv
[ "$version" = "$pinned" ] || venv=$root/.deps/torch-$version
if [ "${MGPU_NO_INSTALL:-0}" = 1 ]; then
  say "MGPU_NO_INSTALL is set: taking the system's packages as they are"
else
  install_packages
fi
if [ "$torch" = 1 ]; then install_torch; fi
if [ "$torch" = 1 ] && [ "$tests" = 1 ]; then install_peers; fi
# Without our kernels GPUs are slower. The wheels have a compiler for the pinned torch only.
if [ "$torch" = 1 ] && [ "$version" = "$pinned" ] && gpu_is_there; then cuda=1; fi
if [ "$cuda" = 1 ] && ! cuda_compiler >/dev/null; then
  say "installing nvcc 13.0 from PyPI into .deps/venv"
  install_wheels requirements-cuda.txt
fi
say_cuda_compiler
