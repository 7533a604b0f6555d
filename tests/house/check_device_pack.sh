#!/usr/bin/env bash
# scripts/device-pack: a folder whose programs start with its own libraries, and a refusal where nothing was built.
#     check_device_pack.sh SOURCE BUILD
set -eu
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$source/scripts/device-pack" "$folder/packed" "$build"
foreign=$(LD_LIBRARY_PATH="$folder/packed/lib" ldd "$folder/packed/cli/cohobate" | awk '$2 == "=>" { print $3 }' |
    grep -vE "^$folder/packed/lib/|/(libc|libm|libdl|librt|libpthread)\.so" || true)
[ -z "$foreign" ] || { echo "not in the folder: $foreign"; exit 1; }
LD_LIBRARY_PATH="$folder/packed/lib" "$folder/packed/cli/cohobate" --version
[ ! -e "$folder/packed/lib/libcuda.so.1" ] || { echo "a driver was packed"; exit 1; }
if said=$("$source/scripts/device-pack" "$folder/none" "$folder" 2>&1); then echo "nothing was refused"; exit 1; fi
case $said in *"is not there: scripts/setup builds it, where CUDA 13 is"*) ;; *) echo "no remedy: $said"; exit 1 ;; esac
