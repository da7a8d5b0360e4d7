#!/bin/sh
# Installs MaxText into a virtual environment of its own, which is made first if it is not there.
#   scripts/maxtext.sh VENV [PYTHON]
# The version is the one whose keys the project knows. Without PYTHON, an interpreter that MaxText takes is looked for.
set -u

venv=$1
python=${2:-}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' src/ridgeline/export/maxtext_0_2_5.toml)

install() {
    echo "Installing MaxText $version into $venv ($("$venv/bin/python" --version))" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "maxtext[tpu]==$version"
}

if "$venv/bin/python" -c "import pip" 2>/dev/null; then
    install
    exit
fi

for candidate in ${python:-$(for minor in 3.12 3.13 3.14; do sh scripts/pythons.sh "$minor"; done)}; do
    echo "Making $venv with $candidate" >&2
    "$candidate" -m venv --clear "$venv" && install && exit 0
    echo "$candidate does not do." >&2
done

echo "No usable Python: MaxText needs 3.12 or later with venv and pip; name one with PYTHON=/path/to/python3.12" >&2
exit 1
