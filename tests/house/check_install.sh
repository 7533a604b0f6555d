#!/usr/bin/env bash
# check_install.sh BUILD CONSUMER.c: installs into a temporary folder and builds a program there by
# pkg-config, shared and static, with each C compiler at hand.
set -eu
build=$1 consumer=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

DESTDIR=$folder/root "$MESON_COMMAND" install -C "$build" --no-rebuild --quiet
pc=$(find "$folder/root" -name cohobate.pc)
[ -n "$pc" ] || { echo "no cohobate.pc was installed" >&2; exit 1; }
prefix=$(sed -n 's/^prefix=//p' "$pc")
root=$folder/root$prefix
export PKG_CONFIG_PATH=${pc%/*}
where=(--define-variable=prefix="$root")
libraries=$root/$COH_LIBRARY_FOLDER

# All exported names begin with coh_, so none can clash with a user's names.
if nm -D --defined-only "$libraries/libcohobate.so" | awk '{print $3}' | grep -v '^coh_' >&2; then
    echo "the shared library exports names that do not begin with coh_" >&2
    exit 1
fi

# OpenBLAS starts threads when it is loaded, so a program that links the library must not load it at its start.
for file in "$libraries/libcohobate.so" "$root/bin/cohobate"; do
    if readelf -d "$file" | grep 'NEEDED.*blas' >&2; then
        echo "$file loads OpenBLAS at its start" >&2
        exit 1
    fi
done

built=0
for compiler in gcc clang; do
    command -v "$compiler" >/dev/null || continue
    for flavour in shared static; do
        program=$folder/$compiler-$flavour
        if [ "$flavour" = shared ]; then
            flags=$(pkg-config "${where[@]}" --cflags --libs cohobate)
        else
            # Our archive, by its path (-lcohobate would find the shared library first), with the shared libraries it
            # needs: --static would require these as archives, too.
            needs=$(pkg-config "${where[@]}" --print-requires-private cohobate)
            # shellcheck disable=SC2086
            flags="$(pkg-config "${where[@]}" --cflags cohobate) $libraries/libcohobate.a
                $(pkg-config --libs $needs) $(sed -n 's/^Libs.private: //p' "$pc")"
        fi
        # shellcheck disable=SC2086 # one word per flag is meant
        "$compiler" -std=c17 -Wall -Wextra -Werror "$consumer" -o "$program" $flags
        # The plain path multiplies by OpenBLAS, so both are tried: with OpenBLAS and without.
        LD_LIBRARY_PATH=$libraries "$program"
        COH_ISA=plain LD_LIBRARY_PATH=$libraries "$program"
        built=$((built + 1))
    done
done
echo "$built programs built against the installed library and run"
[ "$built" -gt 0 ]
