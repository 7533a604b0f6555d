#!/usr/bin/env bash
# check_headers.sh INCLUDE: each public header compiles by itself as C99, C17 and C++17 with each compiler that is there,
# without a warning. A file of one #include stands for a user's program.
set -eu
include=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
count=0
for header in "$include"/cohobate/*.h; do
    name=$(basename "$header" .h)
    printf '#include <cohobate/%s.h>\n' "$name" | tee "$folder/$name.c" >"$folder/$name.cc"
    count=$((count + 1))
done
[ "$count" -gt 0 ] || { echo "there are no headers in $include/cohobate" >&2; exit 1; }

checked=''
check() { # COMPILER STANDARD SUFFIX
    command -v "$1" >/dev/null || return 0
    "$1" -std="$2" -Wall -Wextra -Wpedantic -Werror -I "$include" -fsyntax-only "$folder"/*."$3"
    checked+="${checked:+, }$1 -std=$2"
}
for compiler in gcc clang; do
    check "$compiler" c99 c
    check "$compiler" c17 c
done
for compiler in g++ clang++; do check "$compiler" c++17 cc; done
[ -n "$checked" ] || { echo "no compiler is installed"; exit 77; }
echo "$count headers, each by itself: $checked"
