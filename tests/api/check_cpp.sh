#!/usr/bin/env bash
# check_cpp.sh NAMES.cc INCLUDE LIBRARY: a C++ file that names every public function compiles without a warning, links
# and runs, with each C++ compiler that is there. 77 where there is none.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
done_with=
for compiler in g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    "$compiler" -std=c++11 -Wall -Wextra -Wpedantic -Werror -I "$2" "$1" "$3" -Wl,-rpath,"$(dirname "$3")" -o "$folder/names"
    "$folder/names"
    done_with+="${done_with:+, }$("$compiler" --version | head -n 1)"
done
[ -n "$done_with" ] || { echo "neither g++ nor clang++ is installed"; exit 77; }
echo "compiled and linked with $done_with"
