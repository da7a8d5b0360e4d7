#!/bin/sh
# Installs this project into a virtual environment, which is made first if it is not there.
#   scripts/install.sh VENV REQUIREMENT [PYTHON]      e.g. scripts/install.sh .venv '.[test]'
# Without PYTHON, the newest interpreter with which the installation succeeds is taken.
set -u

venv=$1
requirement=$2
python=${3:-}

install() {
    echo "Installing $requirement into $venv ($("$venv/bin/python" --version))" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint constraints.txt --editable "$requirement"
}

if "$venv/bin/python" -c "import pip" 2>/dev/null; then
    install
    exit
fi

for candidate in ${python:-$(sh scripts/pythons.sh)}; do
    echo "Making $venv with $candidate" >&2
    "$candidate" -m venv --clear "$venv" && install && exit 0
    echo "$candidate does not do." >&2
done

echo "No usable Python: Ridgeline needs 3.11 or later with venv and pip; name one with PYTHON=/path/to/python3" >&2
exit 1
