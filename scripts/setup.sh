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
  --cuda   also nvcc for torch's version of CUDA, unless it is there: 13.0 from PyPI's wheels, in
           .deps/venv; 12 from the system's package nvidia-cuda-toolkit
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
      "known; install those of docs/dependencies.md yourself and set MGPU_NO_INSTALL=1" ;;
  esac
}

install_packages() {
  local boost package missing=()
  boost=$(boost_package)
  local wanted=(cmake ninja-build g++ ccache "$boost" libcli11-dev nlohmann-json3-dev
    libyaml-cpp-dev libfmt-dev libssl-dev libpcre2-dev libutf8proc-dev libxxhash-dev libgloo-dev
    zlib1g-dev libzstd-dev catch2 python3-venv)
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
  say "installing ${missing[*]}"
  # Without a network this may succeed; then the installation fails.
  apt_get "${missing[*]}" update || die "apt-get update failed; is there a network?"
  apt_get "${missing[*]}" install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get install failed; is there a network? On Ubuntu the component universe must be enabled"
}

# apt-get as root; the first argument names what is to be installed.
apt_get() {
  local as_root=() packages=$1
  shift
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "cannot install $packages: run as root or install sudo"
    as_root=(sudo)
  fi
  quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@"
}

# Installs one of our requirement files into the environment, which is made when it is not there. The
# first argument names for messages what is installed, those after the file are options of pip.
install_wheels() {
  local python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  local file=$2
  [ -e "$file" ] || file=$root/scripts/$2
  [ -x "$venv/bin/pip" ] || quietly "$python" -m venv "$venv" || die "cannot make $venv"
  quietly "$venv/bin/pip" install --no-input --disable-pip-version-check "${@:3}" \
    -r "$file" ||
    die "pip could not install $1; is there a network, and does PyPI have it for this Python?"
}

install_torch() {
  local python other
  if ! python=$("$root/scripts/torch_python.sh" "$version"); then
    say "installing torch $version into ${venv#"$root/"} (about a minute, 4.7 GiB)"
    if [ "$version" = "$pinned" ]; then
      install_wheels "torch $version" requirements.txt
    else
      other=$(mktemp)
      sed "s/^torch==.*/torch==$version/" "$root/scripts/requirements.txt" >"$other"
      install_wheels "torch $version" "$other"
      rm -f "$other"
    fi
    python=$("$root/scripts/torch_python.sh" "$version") || die "torch $version is not there after pip"
  fi
  say "torch $version: $python"
}

# A package of PyPI without which the build leaves something out: its name, how python prints its
# version, and what is left out.
install_optional() {
  local python package=$1 wanted
  wanted=$(sed -n "s/^$package==//p" "$root/scripts/requirements.txt")
  python=$("$root/scripts/torch_python.sh" "$version")
  if (cd / && "$python" -c "$2; exit(version != '$wanted')") >/dev/null 2>&1; then
    say "$package $wanted: $python"
  elif [ -x "$venv/bin/python3" ] && [ "$python" = "$venv/bin/python3" ]; then
    say "installing $package $wanted into ${venv#"$root/"}"
    quietly "$venv/bin/pip" install --no-input --disable-pip-version-check "$package==$wanted" ||
      say "pip could not install $package, so $3; run this again with a network"
  else
    say "$package $wanted: none, so $3; $python -m pip install $package==$wanted"
  fi
}

# Programs of PyPI beside torch, for the tests.
install_peers() {
  local python wanted
  python=$("$root/scripts/torch_python.sh" "$version")
  wanted='import accelerate, bitsandbytes, jinja2, math_verify, peft, safetensors, setproctitle, tensorboard, tokenizers, transformers
import importlib.util as u; u.find_spec("trl") and u.find_spec("modelscope_hub") or exit(1)'
  if (cd / && "$python" -c "$wanted") >/dev/null 2>&1; then return; fi
  [ "$python" = "$venv/bin/python3" ] ||
    die "$python lacks what tests/peers needs: pip install -r scripts/requirements-tests.txt"
  say "installing transformers, peft and others into ${venv#"$root/"}, for tests"
  install_wheels "the packages of the tests" requirements-tests.txt
  install_wheels "trl" requirements-templates.txt --no-deps
}

# The version of CUDA that torch was built for, such as 12.8.
cuda_of_torch() {
  local python
  [ "$version" != "$pinned" ] || { echo 13.0; return; }
  python=$("$root/scripts/torch_python.sh" "$version")
  (cd / && "$python" -c '
import importlib.util, pathlib, re
folder = importlib.util.find_spec("torch").submodule_search_locations[0]
print(re.search("^cuda.*\x27(.+)\x27", pathlib.Path(folder, "version.py").read_text(), re.M)[1])')
}

# PTX of a newer release than the driver supports does not run; PyPI has 13.0 for the pinned torch.
# Of CUDA 12 there are several releases, and code for the GPUs at hand runs with all of them.
nvcc_fits() { "$1" --version 2>/dev/null | grep -q "release $nvcc_release"; }

# The CUDA compiler a build would use: scripts/cmake/CudaCompiler.cmake looks in the same places.
cuda_compiler() {
  local nvcc
  for nvcc in "$venv"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc $(type -ap nvcc || true); do
    if [ -x "$nvcc" ] && nvcc_fits "$nvcc"; then
      echo "$nvcc"
      return
    fi
  done
  return 1
}

# PyPI has no nvcc of CUDA 12. Debian 13 and Ubuntu 24.04 have one, Debian 12 an older one. Their
# package depends on the driver's libraries, which must not be added to those of another installer.
install_cuda_12() {
  local candidate="" problem="" advice="put nvcc of NVIDIA's CUDA 12 toolkit on PATH"
  if [ "${MGPU_NO_INSTALL:-0}" != 1 ]; then
    apt_get nvidia-cuda-toolkit update || die "apt-get update failed; is there a network?"
    candidate=$(apt-cache policy nvidia-cuda-toolkit 2>/dev/null | sed -n 's/^ *Candidate: //p')
  fi
  if [[ $candidate != 12.* ]]; then
    problem="no nvcc of CUDA 12 was found"
    advice="Debian 13 (components contrib and non-free) and Ubuntu 24.04 (component multiverse) have it \
in the package nvidia-cuda-toolkit; elsewhere $advice"
  elif gpu_is_there && ! dpkg -S '*/libcuda.so.1' >/dev/null 2>&1; then
    problem="nvidia-cuda-toolkit would add a second driver's libraries, because that of this machine \
is of no package"
  fi
  if [ -z "$problem" ]; then
    say "installing nvidia-cuda-toolkit $candidate (1.8 GiB to download)"
    apt_get nvidia-cuda-toolkit install -y --no-install-recommends nvidia-cuda-toolkit ||
      die "apt-get install nvidia-cuda-toolkit failed; on Debian 13 the component contrib must be enabled too"
  elif [ "$asked_for_cuda" = 1 ]; then
    die "$problem; $advice"
  else
    say "$problem, so GPUs run without our kernels; $advice"
  fi
}

gpu_is_there() { nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

say_cuda_compiler() {
  local nvcc
  if nvcc=$(cuda_compiler); then
    say "CUDA compiler: $nvcc ($("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'))"
  else
    say "CUDA compiler: none (no nvcc $nvcc_wanted on PATH), a build without our kernels"
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
if [ "$torch" = 1 ]; then
  # The plug-in for Parquet and Arrow files is built against it.
  install_optional pyarrow "from pyarrow import __version__ as version" \
    "Parquet and Arrow files are not read"
  install_optional nvidia-cudnn-frontend \
    "import importlib.metadata as m; version = m.version('nvidia-cudnn-frontend')" \
    "training on packed rows is slower"
fi
if [ "$torch" = 1 ] && [ "$tests" = 1 ]; then install_peers; fi
asked_for_cuda=$cuda
# Without our kernels GPUs are slower.
if [ "$torch" = 1 ] && gpu_is_there; then cuda=1; fi
cuda_version=$(cuda_of_torch) || die "the version of CUDA of torch $version cannot be found"
nvcc_release='13\.0' nvcc_wanted=13.0
if [[ $cuda_version == 12* ]]; then nvcc_release='12\.' nvcc_wanted=12.x; fi
if [ "$cuda" = 1 ] && ! cuda_compiler >/dev/null; then
  if [[ $cuda_version == 12* ]]; then
    install_cuda_12
  else
    say "installing nvcc 13.0 from PyPI into .deps/venv"
    install_wheels "nvcc 13.0" requirements-cuda.txt
  fi
fi
say_cuda_compiler
