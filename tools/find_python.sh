#!/bin/sh
# Print the Python that the book's environment is made from, or say in one line what is missing.
# The first argument, if it is not empty, is the only candidate (make PYTHON=...).
# A candidate counts only if it runs: the commands that pyenv puts on PATH exist even where they fail.

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

refuse() {
    echo "$1" >&2
    exit 1
}

found=""
for candidate in ${1:-python3.13 python3.12 python3.11 python3 python3.14}; do
    version=$(version_of "$candidate") || continue
    case $version in
        3.11 | 3.12 | 3.13)
            echo "$candidate"
            exit 0 ;;
        3.14)
            echo "Python 3.14 is untested with this book; 3.11, 3.12 and 3.13 are tested." >&2
            echo "$candidate"
            exit 0 ;;
    esac
    found="$found $candidate is Python $version;"
done

if [ -n "$1" ] && [ -z "$found" ]; then
    refuse "PYTHON=$1 does not run: give the path of a Python 3.11, 3.12 or 3.13."
fi
refuse "This book needs Python 3.11, 3.12 or 3.13, and found none:${found:- no python3 runs here;} install one (python.org, Homebrew, conda, apt) or name it: make book PYTHON=/path/to/python3.13"
