"""`make test-distributed`: the tests of the service, its worker and its deployment on PostgreSQL, Redis and S3.

Services that answer are used; PostgreSQL and Redis are started in a folder of their own where none answers; the store
is moto behind the door of `tests.bucket_server` (one a test run). What cannot be found or started ends the run, loudly.

    POTSTILL_TEST_POSTGRES   default postgresql://postgres@127.0.0.1:5432/test
    POTSTILL_TEST_REDIS      default redis://127.0.0.1:6379/9
    POTSTILL_TEST_S3         a store instead of moto, such as Ceph's gateway; its user has the keys of `bucket_server`
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import redis

POSTGRES = os.environ.get("POTSTILL_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
REDIS = os.environ.get("POTSTILL_TEST_REDIS", "redis://127.0.0.1:6379/9")
WHAT = ["tests/service", "tests/worker/test_runner.py", "tests/migrations", "tests/e2e"]


def has_postgres(url: str) -> bool:
    """Return whether a server answers."""
    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.OperationalError:
        return False
    return True


def has_redis(url: str) -> bool:
    """Return whether a server answers."""
    try:
        with redis.Redis.from_url(url) as link:
            return bool(link.ping())
    except redis.exceptions.ConnectionError:
        return False


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def program(name: str) -> str:
    """Return the path of a program, or end the run."""
    folders = [os.environ["PATH"], *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    found = shutil.which(name, path=":".join(folders))
    if found is None:
        sys.exit(f"test-distributed: no {name} here; install it, or name a running service (see tools/distributed.py)")
    return found


def wait(what: Callable[[], bool], name: str) -> None:
    """Wait half a minute for something to start, or end the run."""
    end = time.monotonic() + 30
    while not what():
        if time.monotonic() > end:
            sys.exit(f"test-distributed: {name} does not start")
        time.sleep(0.1)


def start_postgres(folder: Path, ending: ExitStack) -> str:
    """Make a cluster in a folder; as root it runs as `nobody`, which PostgreSQL insists on."""
    data, port, run_as = folder / "postgres", free_port(), []
    if os.getuid() == 0:
        run_as = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        folder.chmod(0o755)
        data.mkdir()
        shutil.chown(data, "nobody", "nogroup")
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    subprocess.run([*run_as, initdb, "-D", data, "-U", "postgres", "-A", "trust"], check=True, capture_output=True)
    options = f"-p {port} -k {data} -h 127.0.0.1 -c fsync=off"
    command = [*run_as, pg_ctl, "-D", str(data), "-w", "-l", str(data / "log"), "-o", options]
    subprocess.run([*command, "start"], check=True, capture_output=True)
    ending.callback(subprocess.run, [*command, "-m", "immediate", "stop"], capture_output=True)
    return f"postgresql://postgres@127.0.0.1:{port}/postgres"


def start_redis(ending: ExitStack) -> str:
    """Start a server that keeps nothing; return its address."""
    port = free_port()
    command = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    ending.callback(process.wait)
    ending.callback(process.terminate)
    url = f"redis://127.0.0.1:{port}/0"
    wait(lambda: has_redis(url), "Redis")
    return url


def main() -> int:
    """Run the tests; return pytest's status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started here ends with it
    with tempfile.TemporaryDirectory(prefix="potstill-") as folder, ExitStack() as ending:
        postgres = POSTGRES if has_postgres(POSTGRES) else start_postgres(Path(folder), ending)
        broker = REDIS if has_redis(REDIS) else start_redis(ending)
        print(f"PostgreSQL: {postgres}\nRedis: {broker}", flush=True)
        env = os.environ | {
            "POTSTILL_TEST_DISTRIBUTED": "1",
            "POTSTILL_TEST_POSTGRES": postgres,
            "POTSTILL_TEST_REDIS": broker,
        }
        arguments = sys.argv[1:] or WHAT
        command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", *arguments]
        return subprocess.run(command, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
