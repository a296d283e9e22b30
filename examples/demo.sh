#!/usr/bin/env bash
# The main job on the sample that ships with the package. Results go to the folder named as argument.
set -euo pipefail
out=${1:-demo}
sample=$(python -c 'import unmask, pathlib; print(pathlib.Path(unmask.__file__).parent / "sample")')
mkdir -p "$out"

unmask data inspect "$sample/gluino.parquet"
unmask data plot "$sample/gluino.parquet" --out "$out/gluino-events.png"
unmask data split "$sample/gluino.parquet" --out "$out/gluino" --seed 1
