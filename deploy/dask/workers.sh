#!/bin/sh
# Workers of one party on Slurm, one for each node; see README.md.
#SBATCH --job-name=fedboost-workers
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=24:00:00
set -eu

: "${SCHEDULER:?the address of the scheduler, tls://HOST:PORT}"
: "${CERTS:?the folder of ca.pem, worker.pem and worker.key}"

export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES='[]'  # nothing is served in the clear

# Memory without a limit of Dask's own: else it would write what it holds to the disk.
exec srun --cpus-per-task="$SLURM_CPUS_PER_TASK" dask worker "$SCHEDULER" \
  --nthreads "$SLURM_CPUS_PER_TASK" \
  --memory-limit 0 \
  --no-dashboard \
  --death-timeout 600 \
  --tls-ca-file "$CERTS/ca.pem" \
  --tls-cert "$CERTS/worker.pem" \
  --tls-key "$CERTS/worker.key"
