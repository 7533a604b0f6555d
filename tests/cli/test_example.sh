#!/usr/bin/env bash
# test_example.sh BUILD EXAMPLE: installs into a temporary folder, builds the example there with its own Makefile and
# runs it: a user's layer or optimizer, streamed, ends with the hash of the run in memory; a model of a table is saved.
# An extension (libmine.so) trains by the installed program.
# Operator kinds that the example lists (EXAMPLE/kinds: symbol, inputs) pass `cohobate check-kind`.
set -eu
build=$1 example=$2 name=$(basename "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

DESTDIR=$folder/root "$MESON_COMMAND" install -C "$build" --no-rebuild --quiet
pc=$(find "$folder/root" -name cohobate.pc)
[ -n "$pc" ] || { echo "no cohobate.pc was installed" >&2; exit 1; }
prefix=$(sed -n 's/^prefix=//p' "$pc")
cp "$example"/*.c "$example/Makefile" "$folder"
cp "$example"/*.h "$example"/*.cu "$folder" 2>/dev/null || true
# The copy names its present folder, as a real install would.
sed "s|^prefix=.*|prefix=$folder/root$prefix|" "$pc" >"$folder/cohobate.pc"

CFLAGS=-Werror PKG_CONFIG_PATH=$folder make -s -C "$folder"
program=$(find "$folder/root" -path '*/bin/cohobate')
if [ -e "$folder/libmine.so" ]; then # an extension of the command line
    "$program" train mine-gated --kinds "$folder/libmine.so" --data "$example" --sequence 64 --batch 2 --steps 2
    while read -r kind inputs; do
        # shellcheck disable=SC2086 # inputs are words
        "$program" check-kind "$folder/libmine.so:$kind" $inputs
    done <"$example/kinds"
    exit 0
fi
arguments=("$folder")
if [ -e "$example/table.txt" ]; then arguments=("$example/table.txt" "$folder/saved"); fi
cd "$folder"
LD_LIBRARY_PATH=$folder/root$prefix/$COH_LIBRARY_FOLDER "./$name" "${arguments[@]}"
[ ! -e "$example/table.txt" ] || [ -s "$folder/saved/manifest.json" ]

[ -e "$example/kinds" ] || exit 0
export PKG_CONFIG_PATH=$folder LD_LIBRARY_PATH=$folder/root$prefix/$COH_LIBRARY_FOLDER
# shellcheck disable=SC2046 # words of pkg-config
cc -shared -fPIC -O2 $(pkg-config --cflags cohobate) ./*.c $(pkg-config --libs cohobate) -lm -o kinds.so
while read -r kind inputs; do
    # shellcheck disable=SC2086 # inputs are words
    "$program" check-kind "./kinds.so:$kind" $inputs
done <"$example/kinds"
