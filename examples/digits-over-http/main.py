"""Five devices learn digits together. Nothing of Potstill is imported: httpx, numpy and safetensors do it all."""

import argparse
import base64
import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import load, save
from sklearn.datasets import load_digits

Arrays = dict[str, np.ndarray]
URL = os.environ.get("POTSTILL_URL", "http://127.0.0.1:8080")
DEVICES, HIDDEN, CLASSES = 5, 32, 10


def call(token: str, method: str, path: str, **more: Any) -> httpx.Response:
    """Send a request; an error of the service is raised with what it says."""
    headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
    answer = httpx.request(method, URL + path, headers=headers, timeout=60, **more)
    if answer.is_error:
        raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")
    return answer


# ----------------------------------------------------------------------------------------------------------- operator
def create(operator: str, test: Arrays, rounds: int) -> dict[str, Any]:
    """Register the test set, create a federation and start it; return it with its id and join token."""
    dataset = call(operator, "POST", "/v1/datasets?name=digits-over-http", content=save(test)).json()
    body = {
        "name": f"digits-over-http-{time.strftime('%H%M%S')}",  # names are unique: it can be run again
        "task": {"num_classes": CLASSES, "input": {"shape": [64]}},
        "prototypes": [{"name": "main", "architecture": "mlp", "options": {"hidden": [HIDDEN]}}],
        "recipe": {"name": "fedavg"},
        "local": {"optimizer": {"kind": "sgd", "lr": 0.1}, "epochs": 5, "batch_size": 16},
        "rounds": {"total": rounds, "min_clients": DEVICES, "min_updates": DEVICES},
        "datasets": {"test": dataset["id"]},
    }
    federation: dict[str, Any] = call(operator, "POST", "/v1/federations", json=body).json()
    call(operator, "POST", f"/v1/federations/{federation['id']}/start")
    return federation


# ------------------------------------------------------------------------------------------------------------- device
def train(weights: Arrays, plan: dict[str, Any], x: np.ndarray, y: np.ndarray, seed: int) -> Arrays:
    """Train `mlp` with one hidden layer by SGD on cross-entropy, as the plan says; float32 like the weights."""
    w1, b1, w2, b2 = (weights[name].copy() for name in ("1.weight", "1.bias", "3.weight", "3.bias"))
    random, rate = np.random.default_rng(seed), np.float32(plan["optimizer"]["lr"])
    for _ in range(plan["epochs"]):
        order = random.permutation(len(y))
        for start in range(0, len(y), plan["batch_size"]):
            batch = order[start : start + plan["batch_size"]]
            hidden = np.maximum(x[batch] @ w1.T + b1, 0)  # [B, H]
            logits = hidden @ w2.T + b2  # [B, C]
            slope = np.exp(logits - logits.max(axis=1, keepdims=True))
            slope /= slope.sum(axis=1, keepdims=True)
            slope[np.arange(len(batch)), y[batch]] -= 1  # softmax minus one-hot: the gradient of the logits
            slope /= len(batch)
            below = (slope @ w2) * (hidden > 0)
            w2 -= rate * slope.T @ hidden
            b2 -= rate * slope.sum(axis=0)
            w1 -= rate * below.T @ x[batch]
            b1 -= rate * below.sum(axis=0)
    return {"1.weight": w1, "1.bias": b1, "3.weight": w2, "3.bias": b2}


def device(federation: dict[str, Any], number: int, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Enrol, train whatever is asked until the federation is over; return the final model."""
    body = {"name": f"device-{number}", "num_samples": len(y)}
    enrolled = call(federation["join_token"], "POST", f"/v1/federations/{federation['id']}/clients", json=body).json()
    token = enrolled["token"]
    while True:
        # The service holds the answer back while there is nothing to do, so this loop does not spin.
        work = call(token, "GET", "/v1/assignment?wait=30").json()
        if work["action"] not in ("train", "done"):
            continue
        weights = load(call(token, "GET", work["model"]["url"]).content)
        if work["action"] == "done":
            return weights
        trained = train(weights, work["local"], x, y, seed=1000 * work["round"]["index"] + number)
        update = save(trained, {"num_samples": str(len(y)), "base_model": work["model"]["id"]})
        digest = base64.b64encode(hashlib.sha256(update).digest()).decode()
        call(token, "PUT", work["upload_url"], content=update, headers={"Repr-Digest": f"sha-256=:{digest}:"})


def main() -> None:
    """Run the federation; print its accuracy after each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    operator = os.environ.get("POTSTILL_TOKEN") or Path(".potstill/operator.token").read_text(encoding="utf-8").strip()

    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    federation = create(operator, {"inputs": x[1500:], "labels": y[1500:]}, rounds)
    # Each device has four of the ten digits, and each digit two devices.
    shares = [np.flatnonzero((y[:1500] - 2 * number) % CLASSES < 4)[number % 2 :: 2] for number in range(DEVICES)]
    with ThreadPoolExecutor(DEVICES) as pool:
        ends = [pool.submit(device, federation, n, x[share], y[share]) for n, share in enumerate(shares)]
        final = [each.result() for each in ends][0]

    done = call(operator, "GET", f"/v1/federations/{federation['id']}/rounds").json()["items"]
    for each in sorted(done, key=lambda each: int(each["index"])):
        print(f"round {each['index']}: accuracy {each['metrics']['accuracy']:.3f}")
    logits = np.maximum(x[1500:] @ final["1.weight"].T + final["1.bias"], 0) @ final["3.weight"].T + final["3.bias"]
    print(f"accuracy of the final model, measured here: {(logits.argmax(axis=1) == y[1500:]).mean():.3f}")


if __name__ == "__main__":
    main()
