"""Reports are as cheap for ten thousand devices as for ten: no join reads all updates for each participant."""

from typing import Any

from sqlalchemy import event, select

from contract.federation import FederationConfig
from service.operations.view import parts
from service.persistence.tables import FederationRow, RoundRow
from tests.service.world import World


def test_an_update_is_looked_up_by_round_and_client(world: World) -> None:
    """Without an index of both, SQLite read a round's updates once for each of its participants: 5 s of 10,000."""
    if world.services.database.engine.dialect.name != "sqlite":
        return  # PostgreSQL knows how many rows there are, and joins two lists
    fed = world.running(["a", "b"])
    asked: list[tuple[str, Any]] = []

    def hear(connection: Any, cursor: Any, statement: str, given: Any, *rest: Any) -> None:
        if "participants" in statement and "EXPLAIN" not in statement:
            asked.append((statement, given))

    with world.store.read() as session:
        federation = session.get_one(FederationRow, fed.id)
        round_ = session.scalars(select(RoundRow)).one()
        event.listen(session.connection(), "before_cursor_execute", hear)
        parts.of_rounds(session, federation)
        parts.newcomers(session, federation)
        list(parts.trained(session, round_, FederationConfig.model_validate(federation.config)))
        plans = [
            session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all() for text, given in asked
        ]
    assert len(plans) == 3
    for plan in plans:
        read = [row.detail for row in plan if " updates " in row.detail or " participants " in row.detail]
        assert "(round_id=? AND client_id=?)" in read[-1], read
