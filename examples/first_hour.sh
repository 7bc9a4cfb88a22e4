#!/usr/bin/env bash
# The first hour of somebody new, in a few minutes: the tour of docs/start.md, then an encoder, a recording and a protocol of one's own.
#
#     . .venv/bin/activate && examples/first_hour.sh [FOLDER]
#
# Everything goes into FOLDER (default: tour), which must be new. It ends with how long the tour took, and writes what it
# scored as FOLDER/result.json. `make test-slow` runs it; results/studies/tour.json is one such file.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-tour}
[[ ! -e $folder ]] || { echo "$folder: is there already. Name another folder, or remove it." >&2; exit 2; }

run() {
    echo "\$ $*" >&2
    "$@"
}

computed() { # seconds of processors that all commands so far have taken
    local fields
    read -ra fields <"/proc/$$/stat"
    echo $(((fields[15] + fields[16]) / $(getconf CLK_TCK)))
}

# The tour, line by line; `tour` is the folder.
begun=$SECONDS
while read -r line; do
    run bash -c "${line//tour\//$folder/}" </dev/null
done < <(awk '/^## A tour/ {there = 1} there && /^```/ {if (inside) exit; inside = 1; next} inside' docs/start.md |
    sed -n 's/ *#.*//; /^pisa /p')
seconds=$((SECONDS - begun)) computing=$(computed)

# An encoder of one's own: a plain nn.Module in one file.
run pisa train "$folder/wifi" --plugin examples/plugin/pisa_capc_example.py --encoder strided --source E2,E3 --target E1 \
    --epochs 1 --batch 32 --out "$folder/own-encoder"

# A recording of one's own: raw samples of the same radios in E1, later; frames are found in it, and scored by name.
run pisa simulate wifi-own-place --scene examples/demo_scene.yaml --recording 0.3 --environment E1 --out "$folder/recordings"
run pisa detect "$folder/recordings/E1-L1-0.sigmf-meta" --label annotation --out "$folder/recorded"
run pisa evaluate "$folder/run" "$folder/recorded"

# A protocol of one's own, to its table.
protocol=(examples/first_protocol.yaml --results "$folder/records")
run pisa bench run "${protocol[@]}" --data "$folder/wifi" --work "$folder/work" --dry-run
run pisa bench run "${protocol[@]}" --data "$folder/wifi" --work "$folder/work"
run pisa bench tables "${protocol[@]}"

python - "$folder" "$seconds" "$computing" <<'PYTHON'
import json, subprocess, sys

folder, seconds, computing = sys.argv[1], *map(int, sys.argv[2:])


def scored(dataset):
    found = subprocess.run(
        ["pisa", "evaluate", f"{folder}/run", f"{folder}/{dataset}", "--json"], capture_output=True, text=True, check=True
    )
    stages = json.loads(found.stdout)["runs"][0]["stages"]
    return {stage: {name: scores[name] for name in ("macro_f1", "accuracy")} for stage, scores in stages.items()}


metrics = json.load(open(f"{folder}/run/model.json"))["metrics"]
result = {
    "command": "examples/first_hour.sh",
    "seconds": seconds,
    "seconds_of_computing": computing,
    "validation_f1": metrics["validation_f1"],
    "target": scored("wifi"),
    "recording": scored("recorded"),
}
with open(f"{folder}/result.json", "w") as file:
    json.dump(result, file, indent=1)
    file.write("\n")
PYTHON
echo "The tour took $seconds s, $computing s of computing; what it scored: $folder/result.json"
