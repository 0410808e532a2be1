#!/usr/bin/env bash
# Builds the image of a release's Containerfile with podman, and uses it: the versions of the programs,
# the quickstart and its answer. Images are kept in a folder of their own, which is removed at the end.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
usage="Usage: scripts/release/try_image.sh [--dist FOLDER] [--steps N] [--stand-in]
  --dist FOLDER  the release [dist]
  --steps N      steps of the quickstart [20]
  --stand-in     instead of the base image that the Containerfile names, a Debian 12 with its own
                 Python, which debootstrap makes; for machines that reach no registry of images
Needs root, podman, a network and 20 GiB in TMPDIR [/tmp]; with --stand-in also debootstrap.
ENGINE has other words for podman, such as \"podman --runtime runc\", RUN_OPTIONS those of podman run,
such as \"--cgroups=disabled\". MIRROR names another Debian mirror, PIP_INDEX_URL another index."
die() { echo "try_image: $*" >&2; exit 1; }

dist=$here/dist steps=20 stand_in=0
while [ $# -gt 0 ]; do
  case $1 in
    --dist | --steps)
      [ $# -gt 1 ] || { echo "try_image: $1 needs a value" >&2; exit 2; }
      case $1 in --dist) dist=$2 ;; --steps) steps=$2 ;; esac
      shift ;;
    --stand-in) stand_in=1 ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) echo "try_image: unknown option $1; see scripts/release/try_image.sh --help" >&2; exit 2 ;;
  esac
  shift
done
read -ra engine <<<"${ENGINE:-podman}"
read -ra run_options <<<"${RUN_OPTIONS:-}"
if ! command -v "${engine[0]}" >/dev/null; then
  echo "try_image: skipped, because ${engine[0]} is not installed: apt install podman"
  exit 0
fi
[ "$(id -u)" = 0 ] || die "needs root"
if [ "$stand_in" = 1 ] && ! command -v debootstrap >/dev/null; then
  die "debootstrap is not installed: apt install debootstrap"
fi
[ -e "$dist/SHA256SUMS" ] || die "$dist has no SHA256SUMS; build the release with scripts/package.sh"
(cd "$dist" && sha256sum --check --quiet --strict SHA256SUMS) || die "$dist is damaged"

work=$(mktemp -d "${TMPDIR:-/tmp}/try-image-XXXXXX")
engine+=(--root "$work/storage" --runroot "$work/run")
clean_up() {
  umount -R "$work/storage/overlay" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
rows=()
step() {
  local name=$1 begin=$EPOCHREALTIME
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$work/output" || die "\"$name\" failed"
  rows+=("| $name | $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $begin }") s |")
}

# A Debian that looks like the base image: pip and python on PATH, and pip may install for all users.
make_stand_in() {
  local root=$work/root
  debootstrap --variant=minbase --include=python3-pip,ca-certificates bookworm "$root" \
    ${MIRROR:+"$MIRROR"} >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; return 1; }
  rm "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
  ln -s /usr/bin/python3 "$root/usr/local/bin/python"
  # This machine's own certificates and index, if it has some.
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  printf '[global]\n%s' "${PIP_INDEX_URL:+index-url = $PIP_INDEX_URL$'\n'}" >"$root/etc/pip.conf"
  tar -C "$root" -cf - . | "${engine[@]}" import --quiet - "$base"
  rm -rf --one-file-system "$root"
}

# A container without network; the folder is its /train.
in_image() {
  "${engine[@]}" run --rm --network=none "${run_options[@]}" -v "$work/host:/train" "$@"
}

base=$(sed -n 's/^FROM //p' "$dist/Containerfile")
if [ "$stand_in" = 1 ]; then
  step "debootstrap, in place of $base" make_stand_in
else
  step "\`podman pull $base\`" "${engine[@]}" pull --quiet "$base"
fi
# Isolated by chroot it needs no right that a container needs, and it has this machine's network.
step "\`podman build -t mgpu .\`" "${engine[@]}" build --isolation=chroot --pull=never -t mgpu \
  -f "$dist/Containerfile" "$dist"
mkdir "$work/host"
step "\`podman run mgpu --version\`" in_image mgpu --version
grep -q '^mgpu-run [0-9]' "$work/output" || die "mgpu-run has no version"
step "\`podman run --entrypoint mgpu-train mgpu version --worker\`" \
  in_image --entrypoint mgpu-train mgpu version --worker
step "\`podman run --entrypoint mgpu-train mgpu quickstart\`" \
  in_image --entrypoint mgpu-train mgpu quickstart
step "\`podman run mgpu --nproc 2 quickstart.yaml --set max_steps=$steps\`" \
  in_image --workdir /train/quickstart mgpu --nproc 2 quickstart.yaml --set "max_steps=$steps"
step "\`podman run --entrypoint mgpu-train mgpu generate --model output/quickstart ...\`" in_image \
  --workdir /train/quickstart --entrypoint mgpu-train mgpu generate --model output/quickstart --prompt "117+845= 7+5=" \
  --max-new-tokens 8
cat >"$work/host/quickstart/rows.py" <<'ROWS'
import pyarrow, pyarrow.parquet
pyarrow.parquet.write_table(pyarrow.table({"prompt": ["1+1="], "completion": ["2"]}), "rows.parquet")
ROWS
step "a dataset in Parquet" in_image --workdir /train/quickstart --entrypoint python \
  mgpu rows.py
step "\`podman run --entrypoint mgpu-train mgpu data ... --set dataset_name=rows.parquet\`" in_image \
  --workdir /train/quickstart --entrypoint mgpu-train mgpu data quickstart.yaml \
  --set dataset_name=rows.parquet
grep -q '^rows.parquet: 1 row ' "$work/output" || die "the row was not read"
step "\`podman run --entrypoint hf mgpu version\`" in_image --entrypoint hf mgpu version
echo
echo "$("${engine[@]}" --version), image of $("${engine[@]}" images --format '{{.Size}}' mgpu)"
echo
echo "| step | time |"
echo "| --- | --- |"
printf '%s\n' "${rows[@]}"
