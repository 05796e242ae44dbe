#!/usr/bin/env bash
# Geometry3K, GSPO, as published: geometry3k_gspo.sh DATA_DIR [--nodes N] [verl overrides ...]
exec bash "$(dirname "${BASH_SOURCE[0]}")/_run.sh" geometry3k gspo "$@"
