"""Wake-ups through the folder queue: whole messages, one taker each, never more than a few."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.entity import Queue

from contract.queue import TASK_WORK
from service.config import Settings
from service.infra import atomicfs, folder_queue
from service.infra.atomicfs import Channel
from service.infra.celery_app import make_celery
from service.infra.queue import Sender
from service.infra.wakeup import Wakeup
from tests.service.conftest import SettingsMaker


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    atomicfs.register()
    with Connection("atomicfs://", transport_options=atomicfs.options(tmp_path / "queue", 0.05)) as connection:
        yield connection.channel()


def messages(folder: Path) -> list[Path]:
    return sorted((folder / "messages").glob("[!.]*.msg"))


def test_messages_come_out_as_they_went_in(channel: Channel) -> None:
    for number in range(3):
        channel._put("potstill", {"number": number})
    channel._put("other", {"number": 9})
    assert [channel._get("potstill")["number"] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(Empty):
        channel._get("potstill")


def test_a_full_queue_drops_wake_ups_instead_of_growing(channel: Channel, tmp_path: Path) -> None:
    for _ in range(folder_queue.MAX_PENDING + 10):
        channel._put("potstill", {})
    assert len(messages(tmp_path / "queue")) == folder_queue.MAX_PENDING


def test_every_message_has_one_taker(channel: Channel) -> None:
    for number in range(40):
        channel._put("potstill", number)
    start = threading.Barrier(4)

    def take(_: int) -> list[int]:
        start.wait()
        mine = []
        while True:
            try:
                mine.append(channel._get("potstill"))
            except Empty:
                return mine

    with ThreadPoolExecutor(4) as pool:
        taken = sorted(number for mine in pool.map(take, range(4)) for number in mine)
    assert taken == list(range(40))


def test_a_half_written_message_is_not_seen(channel: Channel, tmp_path: Path) -> None:
    (tmp_path / "queue" / "messages" / ".000-half.potstill.msg").write_text("{")
    with pytest.raises(Empty):
        channel._get("potstill")


def test_who_waits_for_a_message_has_it_at_the_ring_and_unheard_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    atomicfs.register()
    taken: list[Any] = []
    for poll, heard in ((60.0, True), (0.01, False)):
        if not heard:
            monkeypatch.setattr(folder_queue, "ring", lambda bell: None)
        options = atomicfs.options(tmp_path / str(heard), poll)
        with Connection("atomicfs://", transport_options=options) as connection:
            consumer = connection.Consumer([Queue("potstill")], callbacks=[lambda body, _: taken.append(body)])
            with consumer, pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.001)
            with consumer:
                threading.Timer(0.05, connection.Producer().publish, ("look",), {"routing_key": "potstill"}).start()
                connection.drain_events(timeout=60)
    assert taken == ["look", "look"]


def test_the_sender_sends_one_json_message_with_nothing_in_it(settings: Settings) -> None:
    sender = Sender(settings)
    assert sender.send("cpu") is True
    [message] = messages(settings.queue_dir)
    body = json.loads(message.read_text())
    assert body["headers"]["task"] == TASK_WORK
    assert body["content-type"] == "application/json"
    assert ".potstill.cpu.msg" in message.name
    sender.close()


def test_the_sender_s_message_is_the_one_of_celery_s_producer(settings: Settings) -> None:
    """A worker of Celery's may wait in the folder; what it reads must not be ours alone to understand."""
    app, sender = make_celery(settings), Sender(settings)
    app.send_task(TASK_WORK, queue="potstill.cpu", retry=False)
    [theirs] = [json.loads(each.read_text()) for each in messages(settings.queue_dir)]
    sender.send("cpu")
    ours = json.loads(messages(settings.queue_dir)[-1].read_text())
    numbers = ("id", "root_id", "correlation_id", "delivery_tag")
    told = ("origin", "argsrepr", "kwargsrepr", "reply_to", "replaced_task_nesting", "stamped_headers")
    for message in (theirs, ours):
        for part in ("headers", "properties"):
            for name in numbers:
                message[part][name] = name in message[part]
            for name in told:  # of use to who looks at messages, and to who waits for a result
                message[part].pop(name, None)
    assert ours == theirs
    app.close()


def test_a_worker_of_celery_s_understands_the_sender(settings: Settings) -> None:
    Sender(settings).send("cpu")
    app = make_celery(settings)
    heard: list[tuple[str, Any]] = []
    with app.connection_for_read() as connection:
        queue = Queue("potstill.cpu")
        with connection.Consumer([queue], callbacks=[lambda body, m: heard.append((m.headers["task"], body))]):
            connection.drain_events(timeout=5)
    [(task, (arguments, options, _))] = heard
    assert (task, arguments, options) == (TASK_WORK, [], {})
    app.close()


def test_all_messages_of_a_queue_are_taken_and_no_others(tmp_path: Path) -> None:
    queues = folder_queue.FolderQueue(tmp_path / "messages")
    for name in ("potstill.cpu", "potstill.cpu", "potstill.gpu"):
        queues.put(name, {})
    assert [queues.clear("potstill.cpu"), queues.clear("potstill.cpu")] == [True, False]
    assert queues.take("potstill.gpu") == {}
    assert queues.take("potstill.gpu") is None


def test_a_broker_that_is_away_is_no_error(make_settings: SettingsMaker) -> None:
    sender = Sender(make_settings(broker_url="nosuchtransport://"))
    assert sender.send("cpu") is False


def test_celery_reads_json_only_and_keeps_no_results(settings: Settings) -> None:
    app = make_celery(settings)
    assert list(app.conf.accept_content) == ["json"]
    assert app.conf.task_serializer == "json"
    assert app.conf.task_ignore_result
    app.close()


def test_a_wake_up_is_sent_from_another_thread_and_ends_with_it(settings: Settings) -> None:
    wakeup = Wakeup(settings)
    sent = threading.Event()
    threads: list[str] = []

    class Recorder(Sender):
        def __init__(self) -> None:
            pass

        def send(self, queue: str) -> bool:
            threads.append(f"{threading.current_thread().name} {queue}")
            sent.set()
            return True

        def close(self) -> None:
            threads.append("closed")

    wakeup._sender.close()
    wakeup._sender = Recorder()
    wakeup.request({"gpu"})
    assert sent.wait(5)
    wakeup.close()
    assert threads == ["wakeup gpu", "closed"]
