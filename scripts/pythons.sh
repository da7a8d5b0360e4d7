#!/bin/sh
# Prints every usable Python of this machine, newest first: 3.11 or later, a final release, able to make a
# virtual environment. With an argument such as 3.11, only those of that version.
set -u

check='
import ensurepip, ssl, sys, venv  # what a virtual environment with pip needs
usable = sys.version_info >= (3, 11) and sys.version_info.releaselevel == "final"
print(*sys.version_info[:3], sys.executable) if usable else sys.exit(1)
'

for python in python3.14 python3.13 python3.12 python3.11 python3 "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin/python3; do
    "$python" -c "$check" 2>/dev/null
done |
    sort -k1,1nr -k2,2nr -k3,3nr |
    while read -r major minor _ path; do
        case "$major.$minor" in
            "${1:-$major.$minor}") echo "$path" ;;
        esac
    done |
    awk '!seen[$0]++'
