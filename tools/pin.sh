#!/bin/sh
# Write constraints.txt anew: install every extra into a fresh environment and list what came.
set -eu
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
sh tools/make_venv.sh "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet ".[all,test,bench,docs]"
"$fresh/venv/bin/python" -m pip list --format=freeze --exclude likelier --exclude pip \
    --exclude setuptools --exclude wheel >"$fresh/pins"
{
    echo "# Versions known to work together; written by \`make constraints\`."
    LC_ALL=C sort -f "$fresh/pins"
} >"$fresh/constraints.txt"
cp "$fresh/constraints.txt" constraints.txt
echo "constraints.txt: $(wc -l <"$fresh/pins") pins"
