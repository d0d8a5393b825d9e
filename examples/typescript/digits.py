"""Write scikit-learn's digits as JSON: pixels of 0 to 16, 64 an image, and labels."""

import json
import sys
from pathlib import Path

from sklearn.datasets import load_digits

digits = load_digits()
target = Path(sys.argv[1])
target.parent.mkdir(exist_ok=True)
found = {"pixels": digits.data.astype(int).tolist(), "labels": digits.target.tolist()}
target.write_text(json.dumps(found), encoding="utf-8")
