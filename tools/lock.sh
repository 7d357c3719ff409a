#!/bin/sh
# Resolve requirements.txt into constraints.txt for every platform and Python at once, then show
# that each Python finds wheels for a Mac with Apple silicon and macOS 14.
set -eu
command -v uv >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -v '^-e ' requirements.txt >"$work/requirements.txt"  # this project itself is not pinned

compile="uv pip compile --quiet --no-header --no-annotate"
$compile --universal --python-version 3.11 --upgrade "$work/requirements.txt" -o "$work/constraints.txt"
for version in 3.11 3.12 3.13 3.14; do
    MACOSX_DEPLOYMENT_TARGET=14.0 $compile --only-binary :all: \
        --python-platform aarch64-apple-darwin --python-version "$version" \
        -c "$work/constraints.txt" "$work/requirements.txt" -o "$work/mac-$version.txt"
    echo "macOS 14, arm64, Python $version: $(wc -l <"$work/mac-$version.txt" | tr -d ' ') packages, all wheels"
done
mv "$work/constraints.txt" constraints.txt
