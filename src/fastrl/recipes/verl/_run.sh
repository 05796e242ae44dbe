#!/usr/bin/env bash
# What the recipes run: _run.sh DATASET ALGORITHM DATA_DIR [--nodes N] [verl overrides ...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$1_$2
source "$here/_published.sh"
source "$here/_$1.sh"
source "$here/_$2.sh"
shift 2

usage="usage: $name.sh DATA_DIR [--nodes N] [verl overrides ...]
DATA_DIR: where \`fastrl verl-data ${name%_*} --output_dir DATA_DIR\` wrote its files.
--nodes N: of a Ray cluster that \`ray start\` has made; 1 by default, without one."
if [[ $# -eq 0 || $1 == -* ]]; then
  echo "$usage" >&2
  exit 2
fi
data=$1
shift
for file in train test; do
  if [[ ! -f $data/$file.parquet ]]; then
    printf '%s\n' "$data/$file.parquet: no such file." "$usage" >&2
    exit 2
  fi
done
data=$(cd "$data" && pwd)
cluster=(trainer.nnodes=1)
if [[ ${1:-} == --nodes ]]; then
  cluster=("trainer.nnodes=${2:?$usage}")
  # Without an address Ray would start a cluster of this node alone, and wait for the others.
  [[ $2 == 1 ]] || cluster+=(+ray_kwargs.ray_init.address=auto)
  shift 2
fi

exec python -m fastrl.verl \
  "data.train_files='$data/train.parquet'" \
  "data.val_files='$data/test.parquet'" \
  "${published[@]}" "${layout[@]}" "${dataset[@]}" "${algorithm[@]}" "${cluster[@]}" \
  "trainer.experiment_name=$name" \
  "$@"
