#!/usr/bin/env bash
# A whole federation by curl and jq: an operator creates it, a device takes part in every round of it.
# What trains is train.py beside this file, Python's standard library alone; any program that reads and writes
# safetensors will do.
set -euo pipefail

URL=${POTSTILL_URL:-http://127.0.0.1:8080}
OPERATOR=${POTSTILL_TOKEN:-$(cat .potstill/operator.token)}
ROUNDS=${1:-3}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT
cd "$FOLDER"

# call TOKEN PATH [curl's options]: prints the answer; an error of the service is shown, and ends the script.
call() {
    local token=$1 path=$2
    shift 2
    curl --silent --show-error --fail-with-body --max-time 60 -H "Authorization: Bearer $token" "$@" "$URL$path"
}

# ---------------------------------------------------------------------------------------------------------- operator
python3 "$HERE/train.py" make-data # points.json for the device, test.safetensors for the server
NAME=curl-$(date +%H%M%S)          # names are unique: it can be run again
call "$OPERATOR" "/v1/datasets?name=curl-test" --upload-file test.safetensors -X POST > dataset.json
jq -n --arg name "$NAME" --argjson rounds "$ROUNDS" --arg test "$(jq -r .id dataset.json)" '{
    name: $name,
    task: {num_classes: 3, input: {shape: [2]}},
    prototypes: [{architecture: "mlp", options: {hidden: []}}],
    recipe: {name: "fedavg"},
    local: {optimizer: {kind: "sgd", lr: 0.1}, epochs: 2, batch_size: 10},
    rounds: {total: $rounds, min_clients: 1, min_updates: 1},
    datasets: {test: $test}
}' | call "$OPERATOR" /v1/federations --json @- > federation.json
FEDERATION=$(jq -r .id federation.json)
call "$OPERATOR" "/v1/federations/$FEDERATION/start" -X POST > /dev/null

# ------------------------------------------------------------------------------------------------------------ device
SAMPLES=$(jq length points.json)
jq -n --argjson samples "$SAMPLES" '{name: "bash", num_samples: $samples}' |
    call "$(jq -r .join_token federation.json)" "/v1/federations/$FEDERATION/clients" --json @- > enrolled.json
DEVICE=$(jq -r .token enrolled.json)

while true; do
    call "$DEVICE" "/v1/assignment?wait=30" > work.json # the answer is held back while there is nothing to do
    case $(jq -r .action work.json) in
        train)
            call "$DEVICE" "$(jq -r .model.url work.json)" -o model.safetensors
            echo "$(jq -r .model.digest work.json | sed 's/^sha256-//')  model.safetensors" | sha256sum --check --quiet
            python3 "$HERE/train.py" train # reads work.json, points.json, model.safetensors; writes update.safetensors
            DIGEST=$(python3 -c 'import base64, hashlib, sys
print(base64.b64encode(hashlib.sha256(open(sys.argv[1], "rb").read()).digest()).decode())' update.safetensors)
            call "$DEVICE" "$(jq -r .upload_url work.json)" --upload-file update.safetensors \
                -H "Repr-Digest: sha-256=:$DIGEST:" > receipt.json
            echo "sent $(jq -r .size receipt.json) bytes for round $(jq -r .round.index work.json)"
            ;;
        done)
            call "$DEVICE" "$(jq -r .model.url work.json)" -o final.safetensors
            break
            ;;
        wait) ;; # ask again
        *)
            echo "this script cannot do $(jq -r .action work.json)" >&2
            exit 1
            ;;
    esac
done

call "$OPERATOR" "/v1/federations/$FEDERATION/rounds" |
    jq -r '.items | sort_by(.index)[] | "round \(.index): accuracy \(.metrics.accuracy)"'
echo "the final model has $(stat -c %s final.safetensors) bytes"
