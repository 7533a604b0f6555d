#!/usr/bin/env bash
# check_cpp.sh INCLUDE LIBRARY FILE.cc ...: C++ files compile without a warning, link and run, with each C++ compiler that is
# there: one that names every public function, one that makes a layer without the macros. 77 where there is no compiler.
set -eu
include=$1 library=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
done_with=
for compiler in g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    for file in "$@"; do
        "$compiler" -std=c++11 -Wall -Wextra -Wpedantic -Werror -I "$include" "$file" "$library" \
            -Wl,-rpath,"$(dirname "$library")" -o "$folder/program"
        "$folder/program"
    done
    done_with+="${done_with:+, }$("$compiler" --version | head -n 1)"
done
[ -n "$done_with" ] || { echo "neither g++ nor clang++ is installed"; exit 77; }
echo "compiled and linked with $done_with"
