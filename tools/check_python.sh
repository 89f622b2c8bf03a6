#!/bin/sh
# Fails with advice unless the interpreter in $1 is Python 3.11 or newer. Not Python itself,
# so that an old interpreter gives this message and not a syntax error.
is_new='import sys; sys.exit(sys.version_info < (3, 11))'

"$1" -c "$is_new" 2>/dev/null && exit 0

if said=$("$1" --version 2>&1); then
    echo "error: Seamark needs Python 3.11 or newer, and '$1' is $said." >&2
else
    echo "error: Seamark needs Python 3.11 or newer, and '$1' does not run." >&2
fi
for other in python3.14 python3.13 python3.12 python3.11; do
    if "$other" -c "$is_new" 2>/dev/null; then
        echo "  There is a newer one here. Add PYTHON=$other to the make command." >&2
        exit 1
    fi
done
echo "  Install one (Debian, Ubuntu: apt install python3 python3-venv), or name one that is not" >&2
echo "  on the PATH: make … PYTHON=/path/to/python3" >&2
exit 1
