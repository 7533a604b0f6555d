#!/usr/bin/env bash
# test_example.sh BUILD EXAMPLE: installs into a temporary folder, builds the example there with its own Makefile and
# runs it: a user's layer or optimizer, streamed, ends with the hash of the run in memory; a model of a table is saved.
set -eu
build=$1 example=$2 name=$(basename "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

DESTDIR=$folder/root "$MESON_COMMAND" install -C "$build" --no-rebuild --quiet
pc=$(find "$folder/root" -name cohobate.pc)
[ -n "$pc" ] || { echo "no cohobate.pc was installed" >&2; exit 1; }
prefix=$(sed -n 's/^prefix=//p' "$pc")
cp "$example/$name.c" "$example/Makefile" "$folder"
# The copy names its present folder, as a real install would.
sed "s|^prefix=.*|prefix=$folder/root$prefix|" "$pc" >"$folder/cohobate.pc"

CFLAGS=-Werror PKG_CONFIG_PATH=$folder make -s -C "$folder"
arguments=("$folder")
if [ -e "$example/table.txt" ]; then arguments=("$example/table.txt" "$folder/saved"); fi
cd "$folder"
LD_LIBRARY_PATH=$folder/root$prefix/$COH_LIBRARY_FOLDER "./$name" "${arguments[@]}"
[ ! -e "$example/table.txt" ] || [ -s "$folder/saved/manifest.json" ]
