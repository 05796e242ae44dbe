#!/usr/bin/env bash
# Geometry3K, GRPO, as published: geometry3k_grpo.sh DATA_DIR [--nodes N] [verl overrides ...]
exec bash "$(dirname "${BASH_SOURCE[0]}")/_run.sh" geometry3k grpo "$@"
