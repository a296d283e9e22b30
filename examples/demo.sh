#!/usr/bin/env bash
# The main job on the sample that ships with the package: from events to anomaly scores, how good they are, and a report.
# Results go to the folder named as argument.
set -euo pipefail
out=${1:-demo}
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { say "$ $*"; "$@"; }
mkdir -p "$out"

run unmask data inspect sample:gluino --figure "$out/events.png"
run unmask study run gluino --only default,masked-token --epochs 6 --device cpu --out "$out/study"
run unmask tokenizer show "$out/study/tokenizers/masked-token" --limit 5
say "Everything is in $out. Open $out/study/report.html in a browser to look at the most anomalous events."
