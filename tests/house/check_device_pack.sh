#!/usr/bin/env bash
# Tests scripts/device-pack: a folder whose programs start with its own libraries, a refusal if nothing was built, a
# message if benchmarks were not; and the GPU claims use the folder's programs and build nothing: check_device_pack.sh
# SOURCE BUILD
set -eu
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$source/scripts/device-pack" "$folder/packed" "$build"
[ -x "$folder/packed/tests/parity/parity_dump" ] || { echo "what claims compare with PyTorch was not packed"; exit 1; }
foreign=$(LD_LIBRARY_PATH="$folder/packed/lib" ldd "$folder/packed/cli/cohobate" | awk '$2 == "=>" { print $3 }' |
    grep -vE "^$folder/packed/lib/|/(libc|libm|libdl|librt|libpthread)\.so" || true)
[ -z "$foreign" ] || { echo "not in the folder: $foreign"; exit 1; }
LD_LIBRARY_PATH="$folder/packed/lib" "$folder/packed/cli/cohobate" --version
[ ! -e "$folder/packed/lib/libcuda.so.1" ] || { echo "a driver was packed"; exit 1; }
if said=$("$source/scripts/device-pack" "$folder/none" "$folder" 2>&1); then echo "nothing was refused"; exit 1; fi
case $said in *"is not there: scripts/setup --cuda --tests builds it, where CUDA 13 is"*) ;; *) echo "no remedy: $said"; exit 1 ;; esac
mkdir -p "$folder/bare/cli" "$folder/bare/tests/cuda"
cp "$build/cli/cohobate" "$folder/bare/cli/"
cp "$build/tests/cuda/gpu-check" "$folder/bare/tests/cuda/"
case $("$source/scripts/device-pack" "$folder/lean" "$folder/bare" 2>&1) in
    *"without benchmarks/bench_gpu_rows: what it measures will be skipped"*) ;;
    *) echo "nothing was said of benchmarks"; exit 1 ;;
esac
# With this machine's programs, except those that build.
mkdir "$folder/bin"
for name in meson ninja cc gcc clang make; do
    printf '#!/bin/sh\necho "$0 was called" >>%s/built\nexit 1\n' "$folder" >"$folder/bin/$name"
    chmod +x "$folder/bin/$name"
done
cd "$source"
for claim in scripts/claims.d/6-[1-5]-*; do
    code=0
    # Hides any GPU: with one they would measure for hours.
    said=$(CUDA_VISIBLE_DEVICES='' PATH="$folder/bin:$PATH" COH_DEVICE_BUILD="$folder/packed" LD_LIBRARY_PATH='' \
        "$claim" 2>&1) || code=$?
    case $claim:$code:$said in
        # met or not: by what is recorded
        *-bits:*:'recorded on '* | *-speed:*:'recorded on '* | *-offload:*:'recorded on '* | *-facts:*:'recorded on '*) ;;
        *:77:'not run: no GPU') ;;
        *) echo "$claim: $code: $said"; exit 1 ;;
    esac
done
[ ! -e "$folder/built" ] || { cat "$folder/built"; exit 1; }
