#!/usr/bin/env bash
# GeoQA8K, DAPO, as published: geoqa8k_dapo.sh DATA_DIR [--nodes N] [verl overrides ...]
exec bash "$(dirname "${BASH_SOURCE[0]}")/_run.sh" geoqa8k dapo "$@"
