#!/bin/sh
# Runs a program as N ranks of one machine: under_mpirun.sh N PROGRAM ARGUMENT...
command -v mpirun >/dev/null || { echo "mpirun is not installed (Debian: openmpi-bin)"; exit 77; }
count=$1
shift
# As root, with more ranks than cores, and next to other tests: Open MPI refuses or pins them without these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
exec mpirun -n "$count" "$@"
