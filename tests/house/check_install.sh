#!/usr/bin/env bash
# check_install.sh BUILD CONSUMER.c [CMAKE_PROJECT]: installs into a temporary folder and builds a program there in C and
# C++, shared and static, with each compiler at hand: by pkg-config, or with CMAKE_PROJECT by CMake's package file (77 where
# there is no cmake).
set -eu
build=$1 consumer=$2 project=${3:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

[ -z "$project" ] || command -v cmake >/dev/null || { echo "cmake is not installed"; exit 77; }
DESTDIR=$folder/root "$MESON_COMMAND" install -C "$build" --no-rebuild --quiet
pc=$(find "$folder/root" -name cohobate.pc)
[ -n "$pc" ] || { echo "no cohobate.pc was installed" >&2; exit 1; }
prefix=$(sed -n 's/^prefix=//p' "$pc")
# The installation, moved to another place than it was configured for.
root=$folder/moved
mv "$folder/root$prefix" "$root"
export PKG_CONFIG_PATH=$root/$COH_LIBRARY_FOLDER/pkgconfig
where=(--define-variable=prefix="$root")
libraries=$root/$COH_LIBRARY_FOLDER
built=0

run() { # PROGRAM
    # The plain path multiplies by OpenBLAS, so both are tried: with OpenBLAS and without.
    LD_LIBRARY_PATH=$libraries "$1"
    COH_ISA=plain LD_LIBRARY_PATH=$libraries "$1"
    built=$((built + 1))
}

check_files() {
    # All exported names begin with coh_, so none can clash with a user's names.
    if nm -D --defined-only "$libraries/libcohobate.so" | awk '$2 != "A" {print $3}' | grep -v '^coh_' >&2; then
        echo "the shared library exports names that do not begin with coh_" >&2
        exit 1
    fi
    for file in man/man1/cohobate.1 man/man1/cohobate-train.1 man/man7/libcohobate.7 zsh/site-functions/_cohobate \
        bash-completion/completions/cohobate.bash fish/vendor_completions.d/cohobate.fish; do
        [ -s "$root/share/$file" ] || { echo "share/$file was not installed" >&2; exit 1; }
    done
    # Programs ask for the soname, and the linker for the name without a number.
    local soname
    soname=$(readelf -d "$libraries/libcohobate.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    if ! [[ $soname =~ ^libcohobate\.so\.[0-9]+$ ]] || [ ! -e "$libraries/$soname" ]; then
        echo "the soname of the library is '$soname', which is not installed or has no number" >&2
        exit 1
    fi
    # OpenBLAS starts threads when it is loaded, so a program that links the library must not load it at its start.
    for file in "$libraries/libcohobate.so" "$root/bin/cohobate"; do
        if readelf -d "$file" | grep 'NEEDED.*blas' >&2; then
            echo "$file loads OpenBLAS at its start" >&2
            exit 1
        fi
    done
}

build_by_pkg_config() {
    for compiler in 'gcc -std=c17' 'clang -std=c17' 'g++ -std=c++17 -xc++' 'clang++ -std=c++17 -xc++'; do
        command -v "${compiler%% *}" >/dev/null || continue
        for flavour in shared static; do
            program=$folder/${compiler%% *}-$flavour
            if [ "$flavour" = shared ]; then
                flags=$(pkg-config "${where[@]}" --cflags --libs cohobate)
            else
                # Our archive, by its path (-lcohobate would find the shared library first), with the shared libraries it
                # needs: --static would require these as archives, too.
                needs=$(pkg-config "${where[@]}" --print-requires-private cohobate)
                # shellcheck disable=SC2086
                flags="$(pkg-config "${where[@]}" --cflags cohobate) $libraries/libcohobate.a
                    $(pkg-config --libs $needs) $(sed -n 's/^Libs.private: //p' "$PKG_CONFIG_PATH/cohobate.pc")"
            fi
            # shellcheck disable=SC2086 # one word per flag is meant
            $compiler -Wall -Wextra -Wpedantic -Werror "$consumer" -xnone -o "$program" $flags
            run "$program"
        done
    done
}

build_by_cmake() {
    if ! { cmake -S "$project" -B "$folder/cmake" -DCMAKE_PREFIX_PATH="$root" -DCONSUMER="$consumer" &&
        cmake --build "$folder/cmake"; } >"$folder/log" 2>&1; then
        cat "$folder/log" >&2
        exit 1
    fi
    for program in "$folder/cmake"/c-* "$folder/cmake"/cxx-*; do run "$program"; done
}

if [ -z "$project" ]; then
    check_files
    build_by_pkg_config
else
    build_by_cmake
fi
echo "$built programs built against the installed library and run"
[ "$built" -gt 0 ]
