#!/usr/bin/env bash
# Tries a release on a Debian that has never seen the source tree: makes a chroot, copies only the
# files of dist/ and tests/gpu/try_release.sh into it, and installs, uses and removes the wheels, the
# .deb and the tarball there. Prints how long each step took.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
usage="Usage: scripts/release/try_in_chroot.sh [--suite NAME] [--dist FOLDER] [--ranks N]
  --suite NAME   the Debian of the chroot [trixie]
  --dist FOLDER  the release [dist]
  --ranks N      ranks of the quickstart [2]
Needs root, debootstrap, a network and 12 GiB in TMPDIR [/tmp], where the chroot is made and removed.
pip in the chroot installs torch. MIRROR names another Debian mirror, PIP_INDEX_URL another index."
die() { echo "try_in_chroot: $*" >&2; exit 1; }

suite=trixie dist=$here/dist ranks=2
while [ $# -gt 0 ]; do
  case $1 in
    --suite | --dist | --ranks)
      [ $# -gt 1 ] || { echo "try_in_chroot: $1 needs a value" >&2; exit 2; }
      case $1 in --suite) suite=$2 ;; --dist) dist=$2 ;; --ranks) ranks=$2 ;; esac
      shift ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) echo "try_in_chroot: unknown option $1; see scripts/release/try_in_chroot.sh --help" >&2; exit 2 ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || die "needs root, to make a chroot"
command -v debootstrap >/dev/null || die "debootstrap is not installed: apt install debootstrap"
[ -e "$dist/SHA256SUMS" ] || die "$dist has no SHA256SUMS; build the release with scripts/package.sh"
(cd "$dist" && sha256sum --check --quiet --strict SHA256SUMS) || die "$dist is damaged"

work=$(mktemp -d "${TMPDIR:-/tmp}/try-in-chroot-XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
begin=$EPOCHREALTIME
echo "== debootstrap $suite"
debootstrap --variant=minbase --include=python3-venv,ca-certificates "$suite" "$root" \
  ${MIRROR:+"$MIRROR"} >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; die "debootstrap failed"; }
echo "made in $(awk "BEGIN { printf \"%.0f\", $EPOCHREALTIME - $begin }") s"
# The network of this machine, with its own certificates if it has some.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
mkdir "$root/release"
cp "$dist"/* "$here/tests/gpu/try_release.sh" "$root/release/"

cat >"$root/release/try_all.sh" <<'INSIDE'
set -euo pipefail
cd /release
rows=()
step() {
  local name=$1 begin=$EPOCHREALTIME
  shift
  echo "== $name"
  "$@" >/tmp/log 2>&1 || { tail -20 /tmp/log >&2; echo "\"$name\" failed" >&2; exit 1; }
  rows+=("| $name | $(awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $begin }") s |")
}
nothing_left() {
  hash -r
  local left
  # The cache of tokenized datasets is the user's, like that of the Hub.
  left=$(find /usr /etc /opt "$HOME" /tmp/venv -iname '*mgpu*' ! -path "$HOME/.cache/mgpu-train")
  [ -z "$left" ] || { echo "left: $left" >&2; exit 1; }
}

# The line of the README. It brings torch, which the steps below use too.
step "\`python3 -m venv\`" python3 -m venv /tmp/venv
step "\`pip install mgpu_run-*.whl mgpu_train-*.whl\`, which downloads torch" \
  /tmp/venv/bin/pip install --quiet mgpu_run-*.whl mgpu_train-*.whl
/tmp/venv/bin/pip uninstall --quiet --yes mgpu-run mgpu-train
PYTHON=/tmp/venv/bin/python3 bash ./try_release.sh /release --ranks "$RANKS"
nothing_left

step "\`apt install ./mgpu-run_*.deb\`" apt-get install -y ./mgpu-run_*.deb
step "\`mgpu-run --nproc 2 /bin/true\`" mgpu-run --nproc 2 /bin/true
step "\`apt remove mgpu-run\`" apt-get purge -y mgpu-run
nothing_left

export PATH=/tmp/venv/bin:$PATH
step "\`tar -xzf mgpu-*.tar.gz\` and \`install.sh\`" sh -c 'tar -xzf mgpu-*.tar.gz -C /tmp && /tmp/mgpu-*/install.sh'
mkdir /tmp/work && cd /tmp/work
step "\`mgpu-train quickstart\`" mgpu-train quickstart
cd quickstart
step "\`mgpu-run --nproc 2 quickstart.yaml --set max_steps=20\`" \
  mgpu-run --nproc "$RANKS" quickstart.yaml --set max_steps=20
step "\`install.sh --uninstall\`" sh -c '/tmp/mgpu-*/install.sh --uninstall'
cd /
nothing_left
echo
echo "| step | time |"
echo "| --- | --- |"
printf '%s\n' "${rows[@]}"
INSIDE
# Its mounts and processes end with its namespaces.
status=0
unshare --mount --pid --fork --kill-child sh -c '
  mount -t proc proc "$1/proc" && mount -t sysfs -o ro sysfs "$1/sys" && mkdir -p "$1/dev/shm" &&
  mount -t tmpfs tmpfs "$1/dev/shm" || exit
  exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin RANKS="$2" \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} \
    chroot "$1" bash /release/try_all.sh' sh "$root" "$ranks" || status=$?
[ "$status" = 0 ] || die "the release does not work on $suite"
echo "try_in_chroot: the release works on $suite"
