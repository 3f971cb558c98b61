#!/bin/sh
# Make a virtual environment with pip in it, unless a working one is already there.
# Usage: make_venv.sh FOLDER     (PYTHON=/path/to/python chooses the interpreter)
set -eu
folder=$1

if "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    # Run it: a name on the path may be a stub, or a shim for a version that is not there.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "likelier needs Python 3.11 or newer; none found as ${PYTHON:-python3, python3.11 ... or python}." >&2
    echo "Install one, or name it: make PYTHON=/path/to/python3" >&2
    exit 1
fi

echo "Creating $folder with $("$python" --version) ..."
if "$python" -m venv --clear "$folder" >/dev/null 2>&1; then
    exit 0
fi
# Some systems ship Python without ensurepip: the pip beside the interpreter fills in.
if "$python" -m venv --clear --without-pip "$folder" &&
    "$python" -m pip --python "$folder/bin/python" install --quiet pip; then
    exit 0
fi
rm -rf "$folder"
echo "Could not make a virtual environment: $python has neither ensurepip nor a pip >= 22.3." >&2
echo "Install pip for it (on Debian or Ubuntu: apt install python3-pip python3-venv)." >&2
exit 1
