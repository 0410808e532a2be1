#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test and check; ends with "N passed, N failed".
#   scripts/test.sh         everything
#   scripts/test.sh quick   without long trainings, sanitizers, clang-tidy and fuzzing
#   scripts/test.sh cli     one stage; --help names them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# A wrong word ends this before anything is installed. Set-up also installs Python.
case " $* " in
  *" --help "* | *" -h "*) ;;
  *)
    if command -v python3 >/dev/null; then python3 -B scripts/run_tests.py --parse-only "$@"; fi
    scripts/prepare.sh --tests ;;
esac
exec python3 scripts/run_tests.py "$@"
