#!/usr/bin/env bash
# The main job on the sample that ships with the package: from events to anomaly scores and how good they are.
# Results go to the folder named as argument.
set -euo pipefail
out=${1:-demo}
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { say "$ $*"; "$@"; }
mkdir -p "$out"

run unmask data inspect sample:gluino
run unmask data plot sample:gluino --out "$out/events.png"
run unmask data split sample:gluino --out "$out/events" --seed 1
run unmask train "$out/events/train.parquet" --validation "$out/events/validation.parquet" --preset gluino-lut-456 \
    --set training.learning_rate=2e-3 --set training.schedule=constant --set training.max_epochs=15 --seed 1 \
    --device cpu --out "$out/model"
run unmask tokenizer show "$out/model/tokenizer" --events "$out/events/test.parquet" --figures "$out" --limit 5
run unmask score "$out/model" "$out/events/test.parquet" --token-losses --out "$out/scores.parquet"
run unmask evaluate "$out/scores.parquet"
say "Everything is in $out: events.png, token-occurrence.png, the trained model and scores.parquet."
