#!/bin/sh
# Installs mgpu-run and mgpu-train from this folder, or removes them again.
#   ./install.sh [--prefix FOLDER] [--uninstall]       FOLDER: ~/.local, or /usr/local for root
# mgpu-train needs torch, which pip installs; it uses the one of python3 on PATH or LIBTORCH_ROOT.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=$HOME/.local uninstall=0
[ "$(id -u)" != 0 ] || prefix=/usr/local
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -gt 1 ] || { echo "install.sh: --prefix needs a folder" >&2; exit 2; }
              prefix=$2; shift ;;
    --uninstall) uninstall=1 ;;
    -h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
    *) echo "install.sh: unknown option $1; see ./install.sh --help" >&2; exit 2 ;;
  esac
  shift
done
rm -f "$prefix/bin/mgpu-run" "$prefix/bin/mgpu-train"
rm -rf "$prefix/libexec/mgpu"
if [ "$uninstall" = 1 ]; then
  rmdir "$prefix/libexec" 2>/dev/null || true
  echo "removed mgpu-run and mgpu-train from $prefix"
  exit 0
fi
mkdir -p "$prefix/bin" "$prefix/libexec"
cp "$here/bin/mgpu-run" "$here/bin/mgpu-train" "$prefix/bin/"
cp -r "$here/libexec/mgpu" "$prefix/libexec/"
echo "installed mgpu-run and mgpu-train in $prefix/bin"
case :$PATH: in
  *:"$prefix/bin":*) ;;
  *) echo "add it to PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
